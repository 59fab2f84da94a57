"""Structure of the code: sizes, unique names, private names, parties that stand alone."""

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.source_tree import FOLDERS, PARTIES, ROOT, module_name
from tests.support.tools import output_of

_MOST_LINES: Final = 600
_ROOM_LINES: Final = {
    "shuffledp": 36,
    "protos": 79,
    "common": 27_457,
    "user_agent": 2_133,
    "shuffler": 5_266,
    "analyzer": 3_816,
    "issuer": 1_142,
    "witness": 271,
    "publisher": 293,
    "deploy": 14_670,
    "lab": 8_226,
    "audit": 7_458,
    "tests": 75_188,
}
_WITNESS_LINES: Final = 6_390
"""Lines of a witness of its own and of all that it imports."""
_EVERY_PARTY_HAS: Final = {"core.py", "server.py", "servicer.py", "settings.py", "metrics.py"}
"""Files that each party has, under one name."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_COMMENT: Final = "Missing associated documentation"
"""What the generator writes for a call that the .proto file does not describe."""


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
    """The lines of each room stay below its limit."""
    assert {*FOLDERS, "tests"} == _ROOM_LINES.keys()
    assert {} == {room: n for room, most in _ROOM_LINES.items() if (n := _lines(room)) > most}


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


@cache
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


def test_a_plain_witness_loads_only_what_it_needs() -> None:
    """No task, batch or result is among it, and its lines with all that it imports are few."""
    modules = {module_name(path): path for path in _sources(*FOLDERS)}
    loaded, found = set[str](), {"shuffledp.witness.server", "shuffledp.witness.__main__"}
    while found - loaded:
        name = (found - loaded).pop()
        loaded.add(name)
        found |= _imported(modules[name]) & modules.keys()

    rooms = {".".join(name.split(".")[:3]) for name in loaded}
    assert set() == rooms & {
        "shuffledp.common.task",
        "shuffledp.common.messages",
        "shuffledp.common.protocols",
    }
    assert _WITNESS_LINES >= sum(
        len(modules[name].read_text(encoding="utf-8").splitlines()) for name in loaded
    )


def test_no_module_imports_a_private_name_of_another() -> None:
    """Nor uses one as an attribute, which ruff checks."""
    for path in _sources(*FOLDERS):
        names = [name.split(".") for name in _imported(path)]
        private = [one for one in names if one[0] == "shuffledp" and re.match("_[^_]", one[-1])]
        assert [] == private, _name(path)


def _is_documented(method: str, owner: ast.ClassDef) -> bool:
    """Return whether a class, or one that it is derived from, has a docstring for a method."""
    found, seen = [owner], list[ast.ClassDef]()
    while found:
        seen.append(one := found.pop())
        for node in one.body:
            if isinstance(node, _FUNCTIONS) and node.name == method:
                text = ast.get_docstring(node) or _NO_COMMENT
                if not text.startswith(_NO_COMMENT):
                    return True
        names = {_name_of(part) for base in one.bases for part in ast.walk(base)}  # type: ignore[arg-type]
        found += [base for name in names for base in _classes().get(name, []) if base not in seen]
    return False


@cache
def _classes() -> Mapping[str, list[ast.ClassDef]]:
    """Return the classes of a name, generated ones included."""
    found = defaultdict[str, list[ast.ClassDef]](list)
    for path in (*_sources(*FOLDERS), *(ROOT / "protos").rglob("*_pb2_grpc.py")):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(node)
    return found


def test_a_public_method_has_a_docstring_or_overrides_one_that_has() -> None:
    """The interface describes what all its forms do; a form describes what is its own."""
    bare = [
        f"{_name(path)}: {owner.name}.{node.name}"
        for path in _sources(*FOLDERS)
        for owner in _tree(path).body
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_")
        for node in owner.body
        if isinstance(node, _FUNCTIONS) and not node.name.startswith("_")
        if not _is_documented(node.name, owner)
    ]

    assert [] == bare


_STARTED: Final = (*PARTIES, "witness.checking")
_START_EACH: Final = """
import importlib, json, os, sys
import asyncio, cryptography.x509, google.protobuf.json_format, grpc.aio, grpc_reflection.v1alpha
import numpy, psutil, prometheus_client, pydantic.dataclasses, randomgen, sqlite3, uvicorn

paths = [path for path in sys.path if not os.path.isdir(path + "/shuffledp")]
for folder, party, others in json.load(sys.stdin):
    if not os.fork():
        sys.path[:] = [folder, *paths]
        for module in ("server", "__main__"):
            importlib.import_module(f"shuffledp.{party}.{module}")
        for other in others:
            try:
                importlib.import_module(f"shuffledp.{other}")
            except ModuleNotFoundError:
                continue
            sys.exit(f"{party} can import {other}")
        assert sys.modules[f"shuffledp.{party}.server"].__file__.startswith(folder)
        loaded = [m for m in sys.modules if m == "scipy" or m.startswith("shuffledp.common.")]
        print(json.dumps([party, loaded]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_each_party_starts_without_the_other_parties(tmp_path: Path) -> None:
    """protos, common and its own folder suffice to load it; most parties load no statistics."""
    rows = []
    for party in _STARTED:
        own, folder = party.partition(".")[0], tmp_path / f"tree of {party}"
        folder.mkdir()
        (folder / "shuffledp").mkdir()
        for name in ("__init__.py", "protos", "common", own):
            (folder / "shuffledp" / name).symlink_to(ROOT / "shuffledp" / name)
        others = [name for name in (*PARTIES, "deploy", "lab", "audit") if name != own]
        rows.append((str(folder), party, others))
    outcome = subprocess.run(
        [sys.executable, "-c", _START_EACH],
        input=json.dumps(rows),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    loaded = dict(map(json.loads, outcome.stdout.splitlines()))

    assert 0 == outcome.returncode, outcome.stderr
    assert set(_STARTED) == loaded.keys()
    for party in {*_STARTED} - {"analyzer", "user_agent"}:
        assert {"scipy", "shuffledp.common.mechanisms", "shuffledp.common.accounting"}.isdisjoint(
            loaded[party]
        ), party


def test_only_the_core_composes_a_party() -> None:
    """Servers, tools and tests make no part that wires others: tested is what is deployed."""
    parts = {"CollectingBatches", "Collection", "Deliveries", "InclusionMonitor"}
    parts |= {"Registry", "Releases", "Staging"}
    by_type = {"CollectingBatches"}  # which the core calls as `batches_of`
    sources = {path: path.read_text(encoding="utf-8") for path in _sources(*FOLDERS, "tests")}
    composed = {
        _name(path): called & parts
        for path, source in sources.items()
        if any(f"{part}(" in source for part in parts) and (called := _called(source) & parts)
    }

    assert {
        f"{party}/core.py" for party in ("analyzer", "shuffler", "user_agent")
    } == composed.keys()
    assert parts - by_type == set().union(*composed.values())


def _called(source: str) -> set[str]:
    """Return what a source calls, by name or as an attribute."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {getattr(called, "id", getattr(called, "attr", "")) for called in calls}


_FORMS: Final = {"kind", "law", "protocol"}
"""Names that hold the form of a thing: a value's kind, a distribution, a protocol."""
_OPTIONAL: Final = {"clusters", "views"}
"""Fields that are absent in all forms but one."""
_TABLES: Final = {"common/protocols.py", "common/task/dummy_forms.py"}
"""Files that hold a row for each form, and so may ask."""
_MOST_QUESTIONS: Final = 60


def _name_of(node: ast.expr) -> str:
    """Return the last part of a name or attribute; empty for other expressions."""
    return getattr(node, "attr", getattr(node, "id", ""))


def _questions(tree: ast.Module, classes: set[str]) -> int:
    """Count the places that compare a form, or ask for the class of a spec or mechanism."""
    found = 0
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                absent = any(isinstance(operator, ast.Is | ast.IsNot) for operator in ops)
                names = {_name_of(side) for side in (left, *others)}
                found += bool(names & (_OPTIONAL if absent else _FORMS))
            case ast.Match(subject=subject, cases=cases) if _name_of(subject) in _FORMS:
                found += len(cases)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                found += not classes.isdisjoint(_name_of(part) for part in ast.walk(kinds))  # type: ignore[arg-type]
    return found


def test_hardly_any_code_asks_which_form_a_thing_has() -> None:
    """What differs by kind, distribution or spec is a method of the thing, or a row of a table."""
    paths = [path for path in _sources(*FOLDERS) if _name(path) not in _TABLES]
    classes = {
        node.name
        for path in _sources("common/task", "common/mechanisms")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef)
    }
    found = {_name(path): _questions(_tree(path), classes) for path in paths}

    assert sum(found.values()) <= _MOST_QUESTIONS, {name: n for name, n in found.items() if n}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("task.kind == 'open'", 1),
        ("kind in kinds", 1),
        ("spec.clusters is not None", 1),
        ("isinstance(spec, Grr | RapporSpec)", 1),
        ("match spec.law:\n    case 'fixed': ...\n    case _: ...", 2),
        ("ROWS[task.kind](task)", 0),
        ("spec.clusters == other", 0),
        ("isinstance(spec, int)", 0),
    ],
)
def test_a_question_for_a_form_is_found(source: str, expected: int) -> None:
    """The count finds comparisons, matches and questions for a class, and no look-up."""
    assert expected == _questions(ast.parse(source), {"Grr", "RapporSpec"})
