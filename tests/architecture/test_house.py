"""Structure of the code: sizes, unique names, private names, parties that stand alone."""

import ast
import re
import shutil
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.source_tree import FOLDERS, PARTIES, ROOT
from tests.support.tools import output_of

_MOST_LINES: Final = 600
_PRODUCT_LINES: Final = 60_650
_ROOM_LINES: Final = {"deploy": 12_020, "lab": 6_920, "audit": 5_890}
_TEST_LINES: Final = 58_480
_EVERY_PARTY_HAS: Final = {"server.py", "servicer.py", "settings.py", "metrics.py"}
"""Files that each party has, under one name."""


@cache
def _sources(*folders: str) -> tuple[Path, ...]:
    """Return handwritten Python files that git tracks or would track."""
    listed = output_of("git", "ls-files", "-co", "--exclude-standard", "--", *folders, folder=ROOT)
    paths = (ROOT / name for name in listed.split() if name.endswith(".py") and "_pb2" not in name)
    return tuple(sorted(path for path in paths if path.is_file()))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _lines(*folders: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _sources(*folders))


def test_the_code_stays_small() -> None:
    """The lines outside tests, in the rooms above the parties and in tests stay below limits."""
    assert _lines(*FOLDERS) <= _PRODUCT_LINES
    assert {} == {room: most for room, most in _ROOM_LINES.items() if _lines(room) > most}
    assert _lines("tests") <= _TEST_LINES


def test_no_file_is_too_long_or_has_a_catch_all_name() -> None:
    """A file has at most 600 lines, and no catch-all name."""
    catch_all = {"utils", "helpers", "constants", "types", "misc"}
    for path in _sources(*FOLDERS, "tests"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= _MOST_LINES, _name(path)
        assert path.stem not in catch_all, _name(path)


def test_a_public_class_name_is_defined_once() -> None:
    """A search for it finds one class."""
    found = defaultdict(list)
    for path in _sources(*FOLDERS):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(_name(path))

    assert {} == {name: paths for name, paths in found.items() if len(paths) > 1}


def test_a_file_name_is_used_in_at_most_two_folders() -> None:
    """Only the files that every party has are exempt."""
    found = defaultdict(list)
    for path in _sources(*FOLDERS):
        if not path.name.startswith("__") and path.name not in _EVERY_PARTY_HAS:
            found[path.name].append(_name(path))

    assert {} == {name: paths for name, paths in found.items() if len(paths) > 2}


def test_deploy_has_no_loose_module() -> None:
    """The root of deploy holds only the entry point."""
    assert ["__init__.py", "cli.py"] == sorted(path.name for path in (ROOT / "deploy").glob("*.py"))


def _imported(path: Path) -> set[str]:
    """Return the modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_no_module_imports_a_private_name_of_another() -> None:
    """Nor uses one as an attribute, which ruff checks."""
    for path in _sources(*FOLDERS):
        names = [name.split(".") for name in _imported(path)]
        private = [one for one in names if one[0] in FOLDERS and re.match("_[^_]", one[-1])]
        assert [] == private, _name(path)


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_starts_without_the_other_parties(party: str, tmp_path: Path) -> None:
    """protos, common and its own folder suffice to load it."""
    for folder in ("protos", "common", party):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    others = [other for other in (*PARTIES, "deploy", "lab", "audit") if other != party]
    program = (
        "import os, sys\n"
        "others = [path for path in sys.path if not os.path.isdir(path + '/deploy')]\n"
        f"sys.path[:] = [{str(tmp_path)!r}, *others]\n"
        f"import {party}.server, {party}.__main__\n"
        f"assert {party}.server.__file__.startswith({str(tmp_path)!r})\n"
        "import importlib\n"
        f"for other in {others!r}:\n"
        "    try:\n"
        "        importlib.import_module(other)\n"
        "    except ModuleNotFoundError:\n"
        "        continue\n"
        "    raise SystemExit(f'{other} can be imported')\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('scipy', 'common')))\n"
    )
    loaded = output_of(sys.executable, "-c", program, folder=tmp_path)

    if party in {"shuffler", "issuer", "witness"}:
        assert "scipy" not in loaded
        assert "common.mechanisms" not in loaded
        assert "common.accounting" not in loaded
