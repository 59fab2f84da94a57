"""What the package's wheel and source archive hold."""

import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.support.source_tree import FOLDERS, ROOT
from tests.support.tools import output_of

_LEFT: Final = (
    "deploy/docker/wheels/numpy-2.4.0-cp311-cp311-manylinux.whl",
    "deploy/docker/wheels/notes.txt",
    "deploy/docker/debs/postgresql/postgresql_15.deb",
    "deploy/secrets/analyzer/state.key",
    "deploy/.env",
    "deploy/kubernetes/example/small/secrets/tls.pem",
    "deploy/old.deb",
    "analyzer/__pycache__/server.cpython-311.pyc",
    "issuer/authority.key",
    "user_agent/web/node_modules/esbuild/main.js",
)
"""Files that container work and runs leave in the folders of the package."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the tracked files without .gitignore, with leftovers."""
    listed = ["git", "ls-files", "--", *FOLDERS, "pyproject.toml", "README.md"]
    for name in (*output_of(*listed, folder=ROOT).splitlines(), *_LEFT):
        target = tmp_path / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in _LEFT:
            target.write_bytes(bytes(2**20))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, target, follow_symlinks=False)
    return tmp_path / "checkout"


def test_the_package_holds_its_sources_alone(checkout: Path, tmp_path: Path) -> None:
    """
    No download, secret or compiled file of an earlier run is in it.

    The archive, in another place, gives the same wheel.
    """
    [wheel] = WheelBuilder(str(checkout)).build(directory=str(tmp_path), versions=["standard"])
    [archive] = SdistBuilder(str(checkout)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    with tarfile.open(archive) as sources:
        packed = {"/".join(name.split("/")[1:]) for name in sources.getnames()}
        sources.extractall(tmp_path, filter="data")
    [unpacked] = tmp_path.glob("shuffledp-*[0-9]/")
    [again] = WheelBuilder(str(unpacked)).build(
        directory=str(tmp_path / "again"), versions=["standard"]
    )
    tracked = {
        f"shuffledp/{path.relative_to(checkout)}".replace("shuffledp/shuffledp/", "shuffledp/")
        for folder in FOLDERS
        for path in (checkout / folder).rglob("*")
        if path.is_file() and path.name != ".gitignore" and path.parent.name != "dist"
    }
    left = {f"shuffledp/{name}" for name in _LEFT}
    web = "shuffledp/user_agent/web/"
    tracked = {name for name in tracked - left if not name.startswith(web)} | {
        f"{web}dist/{path.name}" for path in checkout.glob("user_agent/web/dist/*")
    }

    assert tracked == names
    assert tracked <= packed - left
    assert set() == packed & {*_LEFT, *left}
    assert Path(wheel).stat().st_size < 2.5e6
    assert Path(wheel).read_bytes() == Path(again).read_bytes()
