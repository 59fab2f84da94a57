"""The bill of materials of wheel, npm package and images."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement

from shuffledp.deploy.docker.bill_of_materials import bill_of, pins
from shuffledp.deploy.docker.deployment import ROOT


def test_each_file_needs_what_its_lock_pins(tmp_path: Path) -> None:
    """The wheel all dependencies, the npm package what is bundled, an image its own lock's."""
    for end in ("-py3-none-any.whl", ".tar.gz"):
        (tmp_path / f"shuffledp-0.1.0{end}").touch()
    (tmp_path / "shuffledp-device-0.1.0.tgz").touch()
    (tmp_path / "shuffledp-checking-witness-0.1.0.image.tar.gz").touch()
    bill = bill_of(tmp_path, datetime(2026, 1, 1, tzinfo=UTC))
    wheel, witness, device, whole = (set(each["dependsOn"]) for each in bill["dependencies"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [{purl.rpartition("@")[0] for purl in needed} for needed in (wheel, device)]

    assert {"shuffledp", "shuffledp-device", "shuffledp-checking-witness"} == {
        purl.partition("/")[2].removesuffix("@0.1.0") for purl in whole
    }
    assert {f"pkg:pypi/{Requirement(each).name}" for each in project["dependencies"]} <= names[0]
    assert {"pkg:npm/%40hpke/chacha20poly1305", "pkg:npm/%40hpke/common"} == names[1]
    stated = {one["purl"]: one["externalReferences"][0]["hashes"] for one in bill["components"]}
    hashes = {purl: {one["content"] for one in of} for purl, of in stated.items()}
    assert hashes.keys() == wheel | device | witness | whole
    locked = pins("deploy/docker/checking-witness.lock")
    assert locked == {pin: hashes[f"pkg:pypi/{pin.replace('==', '@')}"] for pin in locked}
    assert {"SHA-512"} == {one["alg"] for purl in device for one in stated[purl]}
    assert {"SHA-256"} == {one["alg"] for purl in {*stated} - device for one in stated[purl]}
