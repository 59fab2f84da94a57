"""
Lays the packages of the images into deploy/docker/wheels, for a build without a network.

The host downloads them with its own pip, configured as it is, for the Python of the base image,
which may be another than the host's. Hashes are checked here, and again in the build.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.utils import canonicalize_name, parse_wheel_filename

from common.errors import SettingsError

FOLDER: Final = Path(__file__).parent
WHEELS: Final = FOLDER / "wheels"
IMAGES: Final = ("shuffler", "analyzer", "user_agent", "operator")
"""The Dockerfile's targets in its order, each with a lock of its own."""

ASK_PYTHON: Final = """\
import json, platform, sys
print(json.dumps({
    "python_full_version": platform.python_version(),
    "implementation_name": sys.implementation.name,
    "platform_python_implementation": platform.python_implementation(),
    "platform_machine": platform.machine(),
    "sys_platform": sys.platform,
    "glibc": platform.libc_ver()[1],
}))
"""
"""A program that prints the fields of `Target`, for the Python of a base image."""

_OLDEST_GLIBC: Final = 5
"""The second number of the oldest C library that wheels are made for, 2.5."""
_LINE: Final = re.compile(
    r"(?P<pin>[\w.-]+==[\w.!+]+)(?: ; (?P<marker>[^\\]+?))?(?P<hashes>(?: --hash=\S+)+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Python of a base image, in the words of markers, and its C library's version."""

    python_full_version: str
    implementation_name: str
    platform_python_implementation: str
    platform_machine: str
    sys_platform: str
    glibc: str

    def __post_init__(self) -> None:
        if self.sys_platform != "linux" or not re.fullmatch(r"2\.\d+", self.glibc):
            raise SettingsError(
                "the base image must be a Linux with glibc: there are wheels for it"
            )

    def options(self) -> Iterator[str]:
        """Give pip's options that choose wheels for it, whatever Python pip runs on."""
        yield "--only-binary=:all:"
        yield f"--python-version={self.python_full_version}"
        for older in range(int(self.glibc.removeprefix("2.")), _OLDEST_GLIBC - 1, -1):
            yield f"--platform=manylinux_2_{older}_{self.platform_machine}"
        for former in ("2014", "2010", "1"):
            yield f"--platform=manylinux{former}_{self.platform_machine}"
        yield f"--platform=linux_{self.platform_machine}"


def pins(lock: str) -> dict[str, tuple[str, ...]]:
    """
    Read a lock: every pin, with its marker if it has one, and its hashes.

    Raises:
        SettingsError: A line is neither a pin nor empty.
    """
    found = {}
    for line in lock.replace("\\\n", " ").splitlines():
        parts = _LINE.fullmatch(re.sub(r"\s+", " ", line).strip())
        if parts is None:
            if line.strip():
                raise SettingsError("a lock holds pins with hashes, and nothing else: make lock")
            continue
        marker = f" ; {parts['marker']}" if parts["marker"] else ""
        found[parts["pin"] + marker] = tuple(sorted(parts["hashes"].split()))
    return found


def wanted(pinned: Mapping[str, Sequence[str]], target: Target) -> dict[str, Sequence[str]]:
    """
    Keep the pins that hold on a target, without their markers.

    pip would ask its own Python instead, whatever --python-version says.
    """
    environment = asdict(target)
    kept = {}
    for name, hashes in pinned.items():
        pin, _, marker = name.partition(" ; ")
        if not marker or Marker(marker).evaluate(environment):
            kept[pin] = hashes
    return kept


def download(target: Target, into: Path = WHEELS) -> int:
    """
    Download what all four locks pin, and remove wheels that none of them does.

    Returns:
        How many files there are.

    Raises:
        SettingsError: pip did not find, or did not accept, one of them.
    """
    needed: dict[str, Sequence[str]] = {}
    for image in IMAGES:
        needed |= wanted(pins((FOLDER / f"{image}.lock").read_text(encoding="utf-8")), target)
    into.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(f"{pin} {' '.join(hashes)}\n" for pin, hashes in needed.items())
        file.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--require-hashes", *target.options()]
        command += [f"--dest={into}", f"--requirement={file.name}"]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # pip
    if outcome.returncode:
        raise SettingsError(f"pip could not download the images' packages:\n{outcome.stderr}")
    there = {tuple(pin.split("==")) for pin in needed}
    for wheel in into.glob("*.whl"):
        name, version, _, _ = parse_wheel_filename(wheel.name)
        if (canonicalize_name(name), str(version)) not in there:
            wheel.unlink()
    return len(list(into.glob("*.whl")))
