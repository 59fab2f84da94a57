"""
Download the images' packages into deploy/docker/wheels, for offline builds.

The local pip downloads them for the Python of the base image. Hashes are checked here and in the
build.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from shuffledp.deploy.docker.deployment import IMAGES, ROOT, Engine

FOLDER: Final = ROOT / "deploy" / "docker" / "wheels"
OFFLINE: Final = (
    "--network=none",
    "--build-arg=PACKAGES_FROM=--no-index --find-links /build/wheels",
)
"""Options of a build from downloaded packages."""

_ASK: Final = """\
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
"""Prints the variables of dependency markers, and the C library's version."""
_OLDEST_GLIBC: Final = 5
"""Minor version of the oldest C library that wheels support, 2.5."""


def download(engine: Engine, base: str) -> None:
    """Download what all locks pin for a base image, and remove wheels that none pins."""
    asked = engine.output("run", "--rm", "--network=none", base, "python3", "-c", _ASK)
    target: dict[str, str] = json.loads(asked)
    needed = {
        str(pin.specifier)[2:] + canonicalize_name(pin.name): line
        for image in (*IMAGES, "shuffler-scale", "analyzer-scale")
        for pin, line in _pins(ROOT / "deploy" / "docker" / f"{image}.lock")
        # pip would ask its own Python, whatever --python-version says.
        if pin.marker is None or pin.marker.evaluate(target)
    }
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in needed.values())
        file.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--require-hashes", *_platform(target)]
        subprocess.run([*command, f"--dest={FOLDER}", f"--requirement={file.name}"], check=True)
    for wheel in FOLDER.glob("*.whl"):
        name, version, _, _ = parse_wheel_filename(wheel.name)
        if f"{version}{name}" not in needed:
            wheel.unlink()


def _pins(lock: Path) -> list[tuple[Requirement, str]]:
    """Return each pin of a lock, with its line without the marker."""
    lines = lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pins = []
    for line in filter(str.strip, lines):
        stated, *hashes = line.split(" --hash=")
        pin = Requirement(stated)
        kept = [f"{pin.name}{pin.specifier}", *(one.strip() for one in hashes)]
        pins.append((pin, " --hash=".join(kept)))
    return pins


def _platform(target: dict[str, str]) -> list[str]:
    """Return pip's options for wheels of a target platform."""
    machine, newest = target["platform_machine"], int(target["glibc"].removeprefix("2."))
    numbers = [f"_2_{number}" for number in range(newest, _OLDEST_GLIBC - 1, -1)]
    tags = [f"manylinux{name}_{machine}" for name in (*numbers, "2014", "2010", "1")]
    return [
        "--only-binary=:all:",
        f"--python-version={target['python_full_version']}",
        *(f"--platform={tag}" for tag in (*tags, f"linux_{machine}")),
    ]
