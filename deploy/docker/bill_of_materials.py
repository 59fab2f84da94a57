"""
Write the bill of materials of what `make dist` made, as JSON of CycloneDX 1.6. Run by make_dist.sh.

A wheel, npm package or image depends on all packages that its lock file pins, direct or not, which
have the lock's hashes. What an image's base holds is not part of it.

Usage: SOURCE_DATE_EPOCH=1767225600 python3 -m shuffledp.deploy.docker.bill_of_materials FOLDER
"""

import json
import os
import re
import sys
from base64 import b64decode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from shuffledp.deploy.docker.deployment import ROOT

_MADE: Final = re.compile(r"(.+)-(\d[\w.]*?)(-py3-none-any\.whl|\.tgz|\.image\.tar\.gz)")
"""Name, version and ending of a file that is a component."""
_TYPES: Final = {"-py3-none-any.whl": "pypi", ".tgz": "npm", ".image.tar.gz": "docker"}
"""Types of package URLs."""
_LOCKS: Final = {"shuffledp": "operator", "shuffledp-auditor": "operator"}
"""Lock files of the wheel, and of the image that has none of its own name."""


def pins(lock: str) -> dict[str, frozenset[str]]:
    """Return the pins of a lock of Python packages, NAME==VERSION, each with its SHA-256 hashes."""
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    rows = [line.split(" --hash=sha256:") for line in text.splitlines() if line.strip()]
    return {pin.partition(";")[0].strip(): frozenset(map(str.strip, of)) for pin, *of in rows}


def _needed(name: str, of_type: str) -> Mapping[str, Iterable[str]]:
    """Return the URL of each package that a component needs, with the hashes of its files."""
    if of_type == "npm":
        lock = json.loads((ROOT / "user_agent/web/package-lock.json").read_text(encoding="utf-8"))
        bundled = {path: of for path, of in lock["packages"].items() if path and not of.get("dev")}
        return {
            f"pkg:npm/{path.rpartition('node_modules/')[2].replace('@', '%40')}@{of['version']}": [
                b64decode(of["integrity"].removeprefix("sha512-")).hex()
            ]
            for path, of in bundled.items()
        }
    lock = _LOCKS.get(name, name.removeprefix("shuffledp-"))
    found = pins(f"deploy/docker/{lock}.lock").items()
    return {f"pkg:pypi/{pin.replace('==', '@')}": hashes for pin, hashes in found}


def _component(purl: str, hashes: Iterable[str]) -> dict[str, Any]:
    name, _, version = purl.partition("/")[2].replace("%40", "@").rpartition("@")
    stated = [{"alg": f"SHA-{4 * len(each)}", "content": each} for each in sorted(hashes)]
    files = {"type": "distribution", "url": purl, "hashes": stated}
    of_type = "container" if purl.startswith("pkg:docker/") else "library"
    known = {"name": name, "version": version, "purl": purl, "externalReferences": [files]}
    return {"type": of_type, "bom-ref": purl, **known}


def bill_of(folder: Path, time: datetime) -> Mapping[str, Any]:
    """Return the bill of materials of a folder's files, made at a time."""
    hashes, needs = dict[str, Iterable[str]](), dict[str, list[str]]()
    for file in sorted(folder.iterdir()):
        if found := _MADE.fullmatch(file.name):
            name, version, of_type = found[1], found[2], _TYPES[found[3]]
            needed, purl = _needed(name, of_type), f"pkg:{of_type}/{name}@{version}"
            hashes |= {purl: [sha256(file.read_bytes()).hexdigest()], **needed}
            needs[purl] = sorted(needed)
    whole = {"type": "application", "bom-ref": "shuffledp", "name": "shuffledp"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {"timestamp": time.isoformat(), "component": whole},
        "components": [_component(purl, hashes[purl]) for purl in sorted(hashes)],
        "dependencies": [
            {"ref": ref, "dependsOn": of} for ref, of in {**needs, "shuffledp": [*needs]}.items()
        ],
    }


if __name__ == "__main__":
    committed = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    target = Path(sys.argv[1])
    text = json.dumps(bill_of(target, committed), indent=1)
    (target / "shuffledp.cdx.json").write_text(f"{text}\n", encoding="utf-8")
