"""The shape of the house: sizes, unique names, no circles, and private names kept private."""

import ast
import re
import subprocess
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_PARTIES: Final = ("user_agent", "shuffler", "analyzer")
_FOLDERS: Final = ("protos", "common", *_PARTIES, "deploy")
_MOST_LINES: Final = 600
_PRODUCT_LINES: Final = 54_500
_DEPLOY_LINES: Final = 26_000
_TEST_LINES: Final = 52_500
_EVERY_PARTY_HAS: Final = {"server.py", "servicer.py", "settings.py", "metrics.py"}
"""Files that each party has at its edge, under one name."""


@cache
def _sources(*folders: str) -> tuple[Path, ...]:
    """Return handwritten Python files that git knows, or would if they were added."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *folders],  # noqa: S607
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    paths = (_ROOT / name for name in listed if name.endswith(".py") and "_pb2" not in name)
    return tuple(sorted(path for path in paths if path.is_file()))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


def _lines(*folders: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _sources(*folders))


def test_the_house_stays_small() -> None:
    """Outside tests, in deploy, and in tests."""
    assert _lines(*_FOLDERS) <= _PRODUCT_LINES
    assert _lines("deploy") <= _DEPLOY_LINES
    assert _lines("tests") <= _TEST_LINES


def test_no_file_is_too_long_or_a_drawer() -> None:
    """At most 600 lines, and a noun for a name."""
    drawers = {"utils", "helpers", "constants", "types", "misc"}
    for path in _sources(*_FOLDERS, "tests"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= _MOST_LINES, _name(path)
        assert path.stem not in drawers, _name(path)


def test_a_public_class_name_is_defined_once() -> None:
    """So that a search finds the one."""
    found = defaultdict(list)
    for path in _sources(*_FOLDERS):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(_name(path))

    assert {} == {name: paths for name, paths in found.items() if len(paths) > 1}


def test_a_file_name_stands_in_at_most_two_folders() -> None:
    """But for the files that every party has at its edge."""
    found = defaultdict(list)
    for path in _sources(*_FOLDERS):
        if not path.name.startswith("__") and path.name not in _EVERY_PARTY_HAS:
            found[path.name].append(_name(path))

    assert {} == {name: paths for name, paths in found.items() if len(paths) > 2}


def test_deploy_has_no_loose_module() -> None:
    """The entry point alone stands at its root."""
    assert ["__init__.py", "cli.py"] == sorted(
        path.name for path in (_ROOT / "deploy").glob("*.py")
    )


def _imported(path: Path) -> set[str]:
    """Return the modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_folders_import_each_other_one_way_only(depth: int) -> None:
    """At every depth: no circle, and so no arrow back up."""
    graph: dict[str, set[str]] = defaultdict(set)
    packages = {path.parent for path in _sources(*_FOLDERS)}
    for path in _sources(*_FOLDERS):
        here = ".".join(path.relative_to(_ROOT).parts[:-1][:depth])
        for module in _imported(path):
            folder = _ROOT.joinpath(*module.split("."))
            while folder not in packages and folder != _ROOT:
                folder = folder.parent
            there = ".".join(folder.relative_to(_ROOT).parts[:depth])
            nested = there.startswith(f"{here}.") or here.startswith(f"{there}.")
            if there and here != there and not nested:
                graph[here].add(there)

    TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle


def test_no_module_imports_a_private_name_of_another() -> None:
    """So that each may change what it does not show; ruff sees private attributes."""
    for path in _sources(*_FOLDERS):
        names = [name.split(".") for name in _imported(path)]
        private = [one for one in names if one[0] in _FOLDERS and re.match("_[^_]", one[-1])]
        assert [] == private, _name(path)
