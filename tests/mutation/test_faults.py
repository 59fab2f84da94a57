"""Each fault of faults.toml, applied to a copy of the tree, makes its named test fail."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.source_tree import FOLDERS
from tests.support.tables import table

_ROOT: Final = Path(__file__).parents[2]
_TABLE: Final = Path(__file__).with_name("faults.toml")
_MOST_ROWS: Final = 72
"""Each row shows what no other does: a new one replaces another, or raises this with its reason."""
_SECONDS: Final = 300.0
_FAULTS: Final[list[dict[str, str]]] = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["fault"]


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Copy what tests need of the repository."""
    folder = tmp_path_factory.mktemp("tree")
    for name in (*FOLDERS, "tests", "examples", "docs"):
        source = _ROOT / name
        left = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, folder / name, symlinks=True, ignore=left)
    shutil.copy(_ROOT / "pyproject.toml", folder)
    yield folder
    shutil.rmtree(folder)


def test_the_table_is_short_and_names_each_fault_once() -> None:
    """Mutants that a mutation tester generates do not belong in it."""
    assert len(_FAULTS) <= _MOST_ROWS
    assert len({fault["name"] for fault in _FAULTS}) == len(_FAULTS)


@table("fault", _FAULTS)
def test_a_fault_still_applies(fault: dict[str, str]) -> None:
    """The fault's text occurs once in its file, and its test exists."""
    file, _, function = fault["test"].partition("::")

    assert 1 == (_ROOT / fault["file"]).read_text(encoding="utf-8").count(fault["text"])
    assert fault["text"] != fault["replacement"]
    assert f"def {function}(" in (_ROOT / file).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("fault", _FAULTS, ids=lambda fault: fault["name"])
def test_a_fault_fails_its_test(fault: dict[str, str], tree: Path) -> None:
    """The test itself fails; a failed collection does not count."""
    file = tree / fault["file"]
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace(fault["text"], fault["replacement"]), encoding="utf-8")
    try:
        outcome = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", fault["test"]],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    finally:
        file.write_text(whole, encoding="utf-8")

    assert pytest.ExitCode.TESTS_FAILED == outcome.returncode, outcome.stdout[-2000:]
    assert "1 failed" in outcome.stdout
