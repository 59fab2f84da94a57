"""Drafts of the next task: iterations of PrivKVM, and labels that a dictionary's task found."""

import dataclasses
import json
import math
import tomllib
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.errors import SettingsError, TaskError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import PairDraft, TaskDraft
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.common.task.uniform_dummies import BinomialDummies
from shuffledp.deploy.results import next_task
from shuffledp.deploy.results.export import as_json
from shuffledp.deploy.results.result_view import result_view
from shuffledp.deploy.tasks import drafts as draft_file
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.command_line import shown
from tests.support.kind_results import kind_collected, result_of
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_draft_fields, kind_task
from tests.support.tables import table
from tests.support.tasks import draft

_KEY: Final = draft().shuffler_key
_ITERATIONS: Final = 3


def _whole(**changes: Any) -> TaskDraft:
    """Return a draft for all iterations: six keys, stars from 0 to 5, ε 4."""
    fields = {"population": "viewers", "local_epsilon": 4.0}
    return draft(**kind_draft_fields("priv-kv", **fields) | changes)


def _released(means: Iterable[float], **changes: Any) -> next_task.Iterated:
    fields: dict[str, Any] = {"kind": "key-value", "low": 0.0, "high": 5.0, "population": "viewers"}
    return next_task.Iterated(**fields | {"means_with_fakes": tuple(means)} | changes)


def _next(number: int, whole: TaskDraft | None = None) -> TaskDraft:
    before = None if number == 1 else _released(np.linspace(1.0, 4.0, 6))
    return next_task.next_draft(whole or _whole(), _ITERATIONS, number, before)


def _pairs(one: TaskDraft) -> PairDraft:
    assert one.pairs is not None
    return one.pairs


def test_the_budget_covers_all_iterations() -> None:
    """The charges sum to at most the total local ε; a stated budget stays."""
    assert 9.0 == _next(2, _whole(budget_epsilon=9.0)).budget_epsilon
    tasks = [
        complete(_next(number), analyzer_key=_KEY[:32], nonce=bytes(32))
        for number in range(1, _ITERATIONS + 1)
    ]

    assert {4.0} == {task.budget_epsilon for task in tasks}
    assert 0 < sum(task.central_epsilon for task in tasks) < 4.0


def test_an_iteration_changes_the_epsilon_the_split_and_the_fakes_of_the_draft() -> None:
    """Fakes are the previous means, clipped to the range; the first iteration's are the draft's."""
    means = [-3.0, 0.0, 1.25, 2.5, 5.0, 99.0]
    second = next_task.next_draft(_whole(), _ITERATIONS, 2, _released(means))
    restored = {name: getattr(_whole(), name) for name in ("local_epsilon", "pairs")}

    assert [0.0, 0.0, 1.25, 2.5, 5.0, 5.0] == pytest.approx(list(_pairs(second).fakes))
    assert _whole() == dataclasses.replace(second, **restored, budget_epsilon=None)
    given = PairDraft(low=0.0, high=5.0, fakes=(1.0,) * 6)
    assert () == _pairs(_next(1)).fakes
    assert (1.0,) * 6 == _pairs(_next(1, _whole(pairs=given))).fakes


@table(
    ("changes", "number", "before", "rule"),
    [
        ({"protocol": "od-hp"}, 1, None, "od-hp is not for pairs"),
        ({"protocol": "duchi"}, 1, None, "duchi is not for pairs"),
        ({"population": ""}, 1, None, "names no population"),
        ({}, 0, None, "number is 0; it must lie between 1 and 3"),
        ({}, 4, _released([0.0] * 6), "number is 4; it must lie between 1 and 3"),
        ({}, 1, _released([0.0] * 6), "number is 1; iteration 1 must not"),
        ({}, 2, None, "number is 2; iteration 1 must not"),
        ({}, 2, _released([0.0] * 5), "number of keys is 5; the draft's is 6"),
        ({"local_epsilon": 0.0}, 1, None, "local_epsilon is 0.0"),
        ({"pairs": PairDraft(low=2.0, high=2.0)}, 2, _released([0.0] * 6), "low must be below"),
        ({}, 2, _released([0.0] * 6, high=10.0), "range is 0.0 to 10.0; the draft's is 0.0 to 5"),
        ({}, 2, _released([0.0] * 6, population="staff"), "population is staff; the draft's is"),
    ],
)
def test_an_impossible_iteration_is_refused(
    changes: dict[str, Any], number: int, before: next_task.Iterated | None, rule: str
) -> None:
    """The message names the rule."""
    with pytest.raises(TaskError, match=rule):
        next_task.next_draft(_whole(**changes), _ITERATIONS, number, before)


_DRAFTS: Final[dict[str, TaskDraft]] = {
    **{name: draft(_KEY, **kind_draft_fields(name)) for name in OF_OTHER_KINDS},
    "labels": draft(
        _KEY,
        domain_size=5,
        buckets=0,
        labels=("a,b", '"q"\\', "ü\n\t", "\N{GRINNING FACE}", "\x7f"),
    ),
    "tables": draft(
        _KEY,
        dummies_per_user=0.0,
        dummies=BinomialDummies(per_user=1, trials=4, extra_weight=9, one_length=True),
        shuffler=ShufflerSpec(noise=GeometricNoise(peak=3, left_weight=5, right_weight=7, most=20)),
    ),
    "infinite": draft(_KEY, local_epsilon=float("inf")),
    "second": _next(2),
}


@table("name", _DRAFTS)
def test_a_written_draft_is_read_back_unchanged(tmp_path: Path, name: str) -> None:
    """Drafts of every kind and with any labels survive."""
    (tmp_path / "draft.toml").write_text(draft_file.as_toml(_DRAFTS[name]), encoding="utf-8")

    read = draft_file.read(tmp_path / "draft.toml")
    assert _DRAFTS[name] == dataclasses.replace(read, shuffler_key=_KEY)


def _json(means: str, low: str = "0") -> str:
    return (
        f'{{"kind": "key-value", "low": {low}, "high": 5, "population": "viewers", '
        f'"means_with_fakes": {means}}}'
    )


_NO_PAIRS: Final = (
    *("", "[]", "{}", "[" * 100_000),
    '{"kind": "key-value", "means_with_fakes": [1.0]}',
    _json("[1]").replace("key-value", "vector"),
    _json("[1]").replace('"kind": "key-value", ', ""),
    *map(_json, ("3", '["x"]', "[null]", f"[{'9' * 400}]", "[NaN]", "[1e999]")),
    _json("[1]", low="NaN"),
)
_NO_TEXTS: Final = ("", "{}", '{"kind": "mean", "encoding": "text", "texts": []}')


@table(
    ("form", "kind", "text"),
    [
        *((next_task.Iterated, "key-value", text) for text in _NO_PAIRS),
        *((next_task.FoundTexts, "open", text) for text in _NO_TEXTS),
    ],
)
def test_a_file_that_is_not_a_result_of_the_kind_is_refused(
    tmp_path: Path, form: type, kind: Kind, text: str
) -> None:
    """The message names the file."""
    (tmp_path / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=f"result.json is not a JSON result of {kind} data"):
        next_task.read_result(tmp_path / "result.json", form, kind)


def test_a_missing_or_overlong_result_is_refused_unread(tmp_path: Path) -> None:
    """The message names the reason."""
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        next_task.read_result(tmp_path / "none.json", next_task.Iterated, "key-value")
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(SettingsError, match="is too long; at most"):
        next_task.read_result(tmp_path / "long.json", next_task.Iterated, "key-value")


def test_the_command_reads_a_printed_result_and_writes_the_next_draft(tmp_path: Path) -> None:
    """The result has the format of `shuffledp result --json`."""
    whole, output = tmp_path / "whole.toml", tmp_path / "second.toml"
    whole.write_text(draft_file.as_toml(_whole()), encoding="utf-8")
    task = kind_task("priv-kv", population="viewers")
    result = result_of(task, estimate=kind_collected("key-value").result.estimate)
    printed = {**as_json(result), **result_view(result.estimate, task, most=1).fields}
    (tmp_path / "first.json").write_text(dumps(printed), encoding="utf-8")
    arguments = ["--number", "2", "--after", str(tmp_path / "first.json"), "--output", str(output)]
    shown("iterate", str(whole), "--iterations", "3", *arguments)

    second = next_task.next_draft(_whole(), 3, 2, _released(np.linspace(4.0, 1.5, 6)))
    assert second == dataclasses.replace(draft_file.read(output), shuffler_key=_KEY)


@given(st.floats(1e-3, 20.0), st.integers(1, 12), st.floats(0.01, 0.99))
def test_all_iterations_together_cost_no_more_than_the_whole(
    epsilon: float, iterations: int, share: float
) -> None:
    """The exact sum is at most the whole's ε, and each task's integers meet its part."""
    split = [
        next_task.iteration(PairDraft(key_share=share), epsilon, iterations, number, None)
        for number in range(1, iterations + 1)
    ]
    spent = sum(Fraction(part_epsilon) for part_epsilon, _ in split)

    assert spent <= Fraction(epsilon)
    assert float(spent) == pytest.approx(epsilon)
    for part_epsilon, part in split:
        assert PrivKv.of_spec(PrivKv.specify(part, part_epsilon), 2).keeps_promise(part_epsilon)


@pytest.mark.parametrize(
    ("number", "means", "epsilon", "key_share"),
    [(1, None, 2.5, 0.8), (2, np.zeros(2), 0.5, 0.0), (4, np.zeros(2), 0.5, 0.0)],
)
def test_only_the_first_iteration_pays_for_the_key(
    number: int, means: Vector | None, epsilon: float, key_share: float
) -> None:
    """The key costs half of ε at first and nothing later; each value costs a c-th of the rest."""
    local_epsilon, draft = next_task.iteration(PairDraft(), 4.0, 4, number, means)
    spec = PrivKv.specify(draft, local_epsilon)

    assert (epsilon, key_share) == (local_epsilon, draft.key_share)
    assert (number > 1) == (spec.key_true_weight == spec.key_other_weight)
    assert PrivKv.of_spec(spec, 2).local_epsilon == pytest.approx(epsilon, abs=1e-9)


@given(st.floats(-1e12, 1e12), st.floats(1e-3, 1e12), st.floats(-2.0, 2.0))
def test_no_fake_leaves_the_range_by_rounding(low: float, width: float, mean: float) -> None:
    """Fakes are clipped, because a task would be refused for the last digit."""
    whole = PairDraft(low=low, high=low + width)
    (fake,) = next_task.iteration(whole, 1.0, 2, 2, np.array([mean]))[1].fakes

    assert low <= fake <= low + width


@table(
    ("epsilon", "iterations", "key_share", "rule"),
    [
        (1.0, 0, 0.5, "there are 0 iterations"),
        (1.0, 1001, 0.5, "there are 1001 iterations"),
        (0.0, 2, 0.5, "local_epsilon is 0.0"),
        (math.inf, 2, 0.5, "local_epsilon is inf"),
        (5e-324, 3, 0.5, "the smallest part is 0.0; it must be at least 2\\^-32"),
        (1e-9, 8, 0.5, "with 8 iterations, the smallest part is 6.25e-11"),
        (1.0, 2, 0.0, "key_share is 0.0"),
        (1.0, 2, 1.0, "key_share is 1.0"),
    ],
)
def test_an_impossible_split_is_refused(
    epsilon: float, iterations: int, key_share: float, rule: str
) -> None:
    """The message names the number that breaks the rule."""
    with pytest.raises(TaskError, match=rule):
        next_task.iteration(PairDraft(key_share=key_share), epsilon, iterations, 1, None)


_HASHES: Final = next_task.FoundTexts(
    kind="open", encoding="hash", most_bytes=255, texts=("00ff" * 4, "11ee" * 4)
)


def _texts(*texts: str) -> next_task.FoundTexts:
    return next_task.FoundTexts(kind="open", encoding="text", most_bytes=8, texts=texts)


def test_found_texts_become_labels_that_devices_can_send() -> None:
    """Texts that no device sends are left out: with spaces at an end, or not in normal form."""
    found = tomllib.loads(
        next_task.labels_fragment(_texts('say "x"', " b", "e\u0301", "", "c\u007f"), spell=False)
    )

    assert {"labels": ['say "x"', "c\u007f"]} == found


def test_found_hashes_become_a_task_that_spells(tmp_path: Path) -> None:
    """The command writes it; its length of a code is that of the hashes."""
    fields = dataclasses.asdict(_HASHES) | {"more": 1}
    result, output = tmp_path / "result.json", tmp_path / "spell.toml"
    result.write_text(json.dumps(fields), encoding="utf-8")
    shown("discover-labels", str(result), "--spell", "--output", str(output))

    written = tomllib.loads(output.read_text(encoding="utf-8"))
    assert {"encoding": "spell", "code_bytes": 8, "most_bytes": 255} == written["open"]
    assert ("discover", list(_HASHES.texts)) == (written["protocol"], written["labels"])


@pytest.mark.parametrize(
    ("found", "spell", "rule"),
    [
        (_texts("a"), True, "--spell needs a result of hashes; its encoding is text"),
        (_HASHES, False, "--spell must be set for a result of hashes; its encoding is hash"),
        (_texts(" "), False, "none of the 1 values found can be a label"),
    ],
)
def test_a_result_that_gives_no_labels_is_refused(
    found: next_task.FoundTexts, rule: str, *, spell: bool
) -> None:
    """A sentence says why."""
    with pytest.raises(SettingsError, match=rule):
        next_task.labels_fragment(found, spell=spell)
