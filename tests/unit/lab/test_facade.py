"""The functions of `import shuffledp as sdp`: what they take, and a sentence for each mistake."""

import asyncio
import json
import math
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.common.errors import ArgumentError, ArgumentTypeError, SettingsError
from shuffledp.common.protocols import Kind
from shuffledp.deploy.demo.local_run import LocalRun
from shuffledp.deploy.notebook.own_values import own_people
from shuffledp.deploy.terminal.interruption import in_thread
from shuffledp.lab.planning.planner import Plan

_AB: Final = ["a"] * 60 + ["b"] * 40


@cache
def _plan() -> Plan:
    return sdp.plan(100, 1, labels=["a", "b"])


@cache
def _table() -> Plan:
    return sdp.plan(100, 1, kind="table", attributes={name: ["a", "b"] for name in "ab"})


_OF_TYPE: Final = """
sdp.plan(1.7, 1) | n_users is 1.7; it must be a whole number
sdp.plan(True, 1) | n_users is True; it must be a whole number
sdp.plan(np.array([100]), 1) | n_users has the type ndarray; it must be a whole number
sdp.plan(100, [1, 2]) | central_epsilon has the type list; it must be a number
sdp.plan(100) | missing argument: central_epsilon
sdp.plan(9, 1, epsilon=1) | unknown argument: epsilon; did you mean central_epsilon?
sdp.plan(9, 1, "mean") | plan takes only n_users, central_epsilon without a name; write kind=…
sdp.plan(9, 1, n_users=9) | n_users is given twice
sdp.plan(9, 1, labels="ab") | labels is 'ab'; it must be a list of texts
sdp.plan(9, 1, labels=["a", 2]) | labels[1] is 2; it must be a text
sdp.plan(9, 1, kind="table", attributes={"sex": "mf"}) | attributes['sex'] is 'mf'; it must be a list of texts
sdp.simulate("abc", 1) | values has the type str; it must be a list, tuple, array or Series
sdp.simulate([True, False], 1) | values[0] has the type bool; it must be a text or a number; str makes a text of it
sdp.simulate(["a", 1], 1) | values holds texts and others; write all of them as texts
sdp.simulate([True, False], 1, kind="mean") | values[0] has the type bool; it must be a number
sdp.simulate(np.array([("a",)], [("x", "U1")]), 1) | values has columns; categorical data needs one of them, such as values['x']
sdp.simulate({"x": AB}, 1) | values has columns; categorical data needs one of them, such as values['x']
sdp.simulate([{0: "x"}], 1, kind="key-value") | values[0][0] must be a number
sdp.simulate(AB, 1, seed=1.7) | seed is 1.7; it must be a whole number
sdp.collect(AB, 3) | plan is 3; it must be what sdp.plan returned, or the path of a draft
sdp.collect(AB, plan().best) | plan has the type Design; it must be what sdp.plan returned, or the path of a draft
sdp.read(None) | source is None; it must be what sdp.plan, simulate or collect returned, or the path of a JSON result
RUN.save("a.json", 3) | html is 3; it must be the path of a file to write
"""  # noqa: E501  # one line for each
_OF_VALUE: Final = """
RUN.save("a.json", "a.json") | json and html are the same file
sdp.plan(0, 1, domain_size=3) | n_users is 0; it must lie between 1 and 1000000000
sdp.plan(10**400, 1, domain_size=3) | n_users is too large; it must be within 64 bits
sdp.plan(9, math.nan, domain_size=3) | central_epsilon is nan; it must be a number
sdp.plan(100, 1) | domain_size is missing: the number of possible values
sdp.plan(9, 1, labels=["a"]) | labels has 1 texts; for categorical data it must have at least 2
sdp.plan(9, 1, labels=["a", ""]) | the label of item 1 is empty, or has a line break
sdp.plan(9, 1, labels=["a", "b", "a"]) | two items have the same label: items 0 and 2
sdp.plan(9, 1, domain_size=3, n_min=10) | n_min is 10 and n_users is 9; n_min must be at most n_users, because a smaller batch is never released
sdp.plan(9, 1, domain_size=3, low=0) | low is for data of these kinds: ordered, mean, vector, key-value; this is categorical data
sdp.plan(9, 1, domain_size=3, coalition_epsilon=1) | coalition_epsilon is for two shufflers; use shufflers=2
sdp.simulate([], 1) | values is empty; it must hold a value for each person
sdp.simulate(["a", None], 1) | values[1] is missing; leave such people out
sdp.simulate(np.array([1, math.nan]), 1) | values[1] is missing; leave such people out
sdp.simulate(["a", NA], 1) | values[1] is missing; leave such people out
sdp.simulate([[1, 2], [1]], 1, kind="vector") | values[1] has the length 1; each row must have 2
sdp.simulate({"x": [1, 2], "y": [1]}, 1, kind="vector") | values has columns of different lengths
sdp.simulate([1, 2], 1, kind="mean", low=0) | low and high must be given together
sdp.simulate([5, 5], 1, kind="mean") | values are all the same: low and high must be given
sdp.simulate([1, 2], 1, kind="mean", low=0, high=1) | values[1]: a number must lie between 0.0 and 1.0 (people whose values break a rule: 1)
sdp.simulate(AB, 1, protocols=["duchi"]) | the protocol duchi is not for categorical data
sdp.epsilon(9, -1, alphabet=3) | local_epsilon must be greater than 0
sdp.epsilon(9, 1) | local-hashing needs the size of its alphabet: alphabet=SIZE
sdp.epsilon(9, 1, mechanism="duchy") | mechanism is 'duchy'; it must be 'grr', 'local-hashing', 'symmetric-unary', 'optimized-unary', 'duchi', 'piecewise' or 'laplace'; did you mean duchi?
sdp.epsilon(9, 1, alphabet=3, colluders=10) | 10 colluders and 0 skippers are more than the 9 users
sdp.collect(AB[1:], plan()) | values has 99 people; n_min is 100, and a smaller batch is never released
sdp.collect([*AB, "c"], plan()) | values[100]: a value must be one of a, b, or # and a number, from #0 to #1 (people whose values break a rule: 1)
sdp.collect({"x": AB}, table()) | values has no column a; the plan's are a, b
sdp.collect({"x": AB, "a": AB, "b": AB}, table()) | values has columns that the plan has not: x
sdp.read("nowhere.json") | nowhere.json cannot be read: No such file or directory
sdp.read("/dev/null") | /dev/null is not a JSON result of one table of estimates
"""  # noqa: E501  # one line for each


class _Na:
    """As pandas' NA, which has no truth value."""

    def __bool__(self) -> bool:
        raise TypeError

    def __str__(self) -> str:
        return "<NA>"


_NAMES: Final = {"plan": _plan, "table": _table, "RUN": object.__new__(LocalRun)}


def _rows(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.strip().splitlines()]


@pytest.mark.parametrize(("call", "sentence"), _rows(_OF_TYPE) + _rows(_OF_VALUE))
def test_a_mistake_is_refused_in_one_sentence(call: str, sentence: str) -> None:
    """Nothing is truncated or started; the error is Python's own, and of the project's family."""
    of_type = call in _OF_TYPE
    with pytest.raises(ArgumentTypeError if of_type else ArgumentError) as refusal:
        eval(call, {**_NAMES, "sdp": sdp, "np": np, "math": math, "AB": _AB, "NA": _Na()})  # noqa: S307

    assert sentence == str(refusal.value)
    assert "--" not in sentence
    assert isinstance(refusal.value, TypeError if of_type else ValueError)


def test_whole_floats_and_numbers_and_arrays_of_numpy_are_taken_exactly() -> None:
    """A plan from them has the draft of a plan from Python's."""
    labels: Any = np.array(["a", "b"])
    for n_users in (1e2, np.int64(100), np.float64(100)):
        assert _plan().best.draft == sdp.plan(n_users, np.float64(1), labels=labels).best.draft  # type: ignore[arg-type]


_SERIES: Final = SimpleNamespace(to_list=lambda: ["a", "b"])
_ROWS: Final = np.array([[1, 2.5], [3, 4]])


@pytest.mark.parametrize(
    ("kind", "expected", "forms"),
    [
        ("categorical", ("a", "b"), [["a", "b"], ("a", "b"), np.array(["a", "b"]), _SERIES]),
        ("categorical", ("1", "2"), [[1, 2.0], range(1, 3), np.array([1, 2], np.float32)]),
        ("mean", ("0.5", "2"), [[0.5, 2], np.array([0.5, 2.0]), ["0.5", "2"]]),
        ("vector", ("1,2.5", "3,4"), [_ROWS, _ROWS.tolist(), {"x": [1, 3], "y": (2.5, 4)}]),
        ("table", ("a / 1", "b / 2"), [[("a", 1), ("b", 2)], {"y": [1, 2], "x": _SERIES}]),
        ("key-value", ("", "0:1.5"), [[{}, {0: 1.5}], ({}, {np.int64(0): np.float32(1.5)})]),
    ],
)
def test_values_of_every_form_are_the_same_people(
    kind: Kind, expected: tuple[str, ...], forms: list[Any]
) -> None:
    """They are written as the cells of a file, and columns are found by the names of a plan."""
    for people in (
        own_people(form, kind, "xy" if kind in "vector table" else "") for form in forms
    ):
        assert (expected, [1, 1]) == (people.labels, people.counts.tolist())


def test_what_is_found_warns_in_words_of_python() -> None:
    """No local noise, a protocol left out, and an error above a guess; without options' names."""
    warnings, left_out = "\n".join(_table().warnings), "".join(_table().left_out.values())
    [capped, few] = sdp.simulate(
        range(9), 0.01, kind="ordered", buckets=4, repeats=1, protocols=["hierarchy", "mixdump"]
    )

    assert "tables has no local noise" in warnings
    assert warnings in repr(_table())
    assert "trust=shuffler-dummies instead of anonymity" in left_out
    assert "local_cap=math.inf instead of 4" in capped.refusal
    assert "too few users" in repr(few)
    assert "--" not in warnings + left_out + capped.refusal


def test_a_result_is_read_by_the_library_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pandas, else polars, else lists; a library that is missing is refused."""
    owners = {"frequencies": [0.1, 0.2], "mean_errors": [1, 2], "labels": ["x", "y"]}
    columns = {"label": ["x", "y"], "share": [0.1, 0.2], "mean_standard_error": [1, 2]}
    (file := tmp_path / "result.json").write_text(json.dumps({"reports": [1], "owners": owners}))
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    assert all(str(columns) == str(sdp.read(file, form)) for form in (None, "columns"))
    with pytest.raises(SettingsError, match="polars is not installed"):
        sdp.read(file, "polars")
    for name in ("polars", "pandas"):
        library = SimpleNamespace(DataFrame=lambda read, name=name: (name, read))
        monkeypatch.setitem(sys.modules, name, library)
        assert (name, columns) == sdp.read(str(file))


async def test_work_runs_in_a_thread_beside_the_loop_of_a_notebook() -> None:
    """Where this thread's loop is running, asyncio.run would refuse."""
    assert 3 == in_thread(asyncio.sleep(0, 3))


def test_the_functions_are_listed_before_they_are_loaded() -> None:
    """And an unknown name is an AttributeError."""
    assert {"collect", "epsilon", "plan", "read", "simulate"} == {*sdp.__all__} <= {*dir(sdp)}
    with pytest.raises(AttributeError, match="module 'shuffledp' has no attribute 'plot'"):
        sdp.plot  # noqa: B018
