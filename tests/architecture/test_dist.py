"""`make dist`: it makes the same bytes each time, and each file serves without a checkout."""

import json
import os
import re
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from tests.support.node import WEB
from tests.support.source_tree import FOLDERS, ROOT
from tests.support.tools import output_of, tool

pytestmark = pytest.mark.slow
_RECORD: Final = """
import atexit, json, os, sys

def record(folder=os.environ.get("RECORDED")):
    files = {name: getattr(each, "__file__", "") for name, each in list(sys.modules.items())}
    with open(os.path.join(folder, str(os.getpid())), "w") as file:
        json.dump(files, file)

if "RECORDED" in os.environ:
    atexit.register(record)
"""
"""Writes the modules of each process, and their files, to a folder."""
_STRANGE: Final = "raise SystemExit"
"""What another package of the same name does."""


def _make(folder: Path, umask: int, **environment: str) -> str:
    """Do what `make dist` does on a machine without an engine; return what it says."""
    tool("npm")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    made = subprocess.run(
        ["/bin/sh", "deploy/docker/make_dist.sh", folder],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": "unix:///nowhere", **environment, "PATH": path},
        umask=umask,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return made.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files that were made."""
    folder = tmp_path_factory.mktemp("dist")
    assert "The images are left out" in _make(folder, 0o022)
    return folder


def _only(folder: Path, pattern: str) -> Path:
    [found] = folder.glob(pattern)
    return found


def test_the_same_commit_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    """At another time, place, time zone and language, and for a user who hides new files."""
    _make(tmp_path, 0o077, TZ="Asia/Tokyo", LC_ALL="C")
    first, second = (
        {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in (made, tmp_path)
    )
    sums = (made / "SHA256SUMS").read_text(encoding="ascii").splitlines()

    assert first == second
    del first["SHA256SUMS"]
    assert 5 == len(first)
    assert first == {name: of for of, name in map(str.split, sums)}


def test_the_npm_package_is_the_committed_bundle_alone(made: Path, tmp_path: Path) -> None:
    """Node imports it without another package; a registry takes it, as it is not private."""
    archive, folder = _only(made, "*.tgz"), tmp_path / "node_modules" / "shuffledp-device"
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    folder.parent.mkdir()
    (tmp_path / "package").rename(folder)
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    names = (
        "LICENSE",
        "README.md",
        "package.json",
        *(f"dist/{of.name}" for of in WEB.glob("dist/*")),
    )
    stated = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    program = 'import("shuffledp-device").then(({ Device }) => console.log(typeof Device))'

    assert {Path(name) for name in names} == files.keys()
    assert all((WEB / at).read_bytes() == files[at].read_bytes() for at in files if at.parent.name)
    assert archive.stat().st_size < 60_000
    assert {"private", "dependencies", "devDependencies", "scripts"}.isdisjoint(stated)
    assert "function" in output_of("node", "-e", program, folder=tmp_path)


def test_the_site_of_documents_is_whole(made: Path, tmp_path: Path) -> None:
    """It has every page of the navigation, and shows the example mechanism's methods."""
    pages = re.findall(r": ([\w/-]+)\.md\n", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    with tarfile.open(_only(made, "*docs*")) as site:
        site.extractall(tmp_path, filter="data")

    assert [] == [page for page in ("index", *pages) if not (tmp_path / f"{page}.html").exists()]
    # A formatter can break the include.
    assert ">def<" in (tmp_path / "researchers" / "add-a-mechanism.html").read_text("utf-8")


def test_the_wheel_runs_beside_packages_with_the_names_of_its_rooms(
    made: Path, tmp_path: Path
) -> None:
    """Each process of the demo loads it as shuffledp alone, without a checkout."""
    [*_, shared] = (path for path in sys.path if path.endswith("site-packages"))
    environment, recorded, work = (tmp_path / name for name in ("environment", "recorded", "work"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    own = _only(environment, "lib/python*/site-packages")
    recorded.mkdir()
    for strange in (own / "common", work / "common", work / "deploy"):
        strange.mkdir(parents=True)
        (strange / "__init__.py").write_text(_STRANGE, encoding="ascii")
    (own / "record.py").write_text(_RECORD, encoding="ascii")
    (own / "shared.pth").write_text(f"{shared}\nimport record\n", encoding="utf-8")
    install = ("--python", str(environment), "install", "--quiet", "--no-deps", "--no-index")
    output_of(sys.executable, "-m", "pip", *install, str(_only(made, "*.whl")))
    subprocess.run(
        [environment / "bin" / "shuffledp", "demo", "--users", "50"],
        cwd=work,
        env={**os.environ, "RECORDED": str(recorded)},
        check=True,
    )
    loaded = [json.loads(path.read_text(encoding="utf-8")) for path in recorded.iterdir()]

    assert 50 == json.loads((work / "result.json").read_text(encoding="utf-8"))["n_users"]
    assert _STRANGE == (own / "common" / "__init__.py").read_text(encoding="ascii")
    assert 5 <= sum("shuffledp" in files for files in loaded)  # the command and its services
    for files in loaded:
        names = {name for name in files if name.partition(".")[0] == "shuffledp"}
        ours = {name for name, file in files.items() if str(own / "shuffledp") in str(file)}
        assert names == ours - {"__main__", "__mp_main__"}
        assert files.keys().isdisjoint({*FOLDERS} - {"shuffledp"})
