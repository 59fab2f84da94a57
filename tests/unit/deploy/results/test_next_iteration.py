import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from typer.testing import CliRunner

from analyzer.task_builder import complete
from common.errors import SettingsError, TaskError
from common.task.draft import PairDraft, TaskDraft
from common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from common.task.uniform_dummies import BinomialDummies
from deploy.cli import app
from deploy.results.export import as_json, read_result
from deploy.results.next_iteration import Iterated, next_draft
from deploy.results.result_view import result_view
from deploy.tasks import drafts as draft_file
from deploy.terminal.json_output import dumps
from tests.support.kind_results import kind_collected, result_of
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_draft_fields, kind_task
from tests.support.tasks import draft

_KEY: Final = draft().shuffler_key
_ITERATIONS: Final = 3


def _whole(**changes: Any) -> TaskDraft:
    """Return a draft for all iterations: six keys, stars from 0 to 5, ε 4."""
    fields = {"population": "viewers", "local_epsilon": 4.0}
    return draft(**kind_draft_fields("priv-kv", **fields) | changes)


def _released(means: Iterable[float], **changes: Any) -> Iterated:
    fields: dict[str, Any] = {"kind": "key-value", "low": 0.0, "high": 5.0, "population": "viewers"}
    return Iterated(**fields | {"means_with_fakes": tuple(means)} | changes)


def _next(number: int, whole: TaskDraft | None = None) -> TaskDraft:
    before = None if number == 1 else _released(np.linspace(1.0, 4.0, 6))
    return next_draft(whole or _whole(), _ITERATIONS, number, before)


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
    second = next_draft(_whole(), _ITERATIONS, 2, _released(means))
    restored = {name: getattr(_whole(), name) for name in ("local_epsilon", "pairs")}

    assert [0.0, 0.0, 1.25, 2.5, 5.0, 5.0] == pytest.approx(list(_pairs(second).fakes))
    assert _whole() == dataclasses.replace(second, **restored, budget_epsilon=None)
    given = PairDraft(low=0.0, high=5.0, fakes=(1.0,) * 6)
    assert () == _pairs(_next(1)).fakes
    assert (1.0,) * 6 == _pairs(_next(1, _whole(pairs=given))).fakes


@pytest.mark.parametrize(
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
    changes: dict[str, Any], number: int, before: Iterated | None, rule: str
) -> None:
    """The message names the rule."""
    with pytest.raises(TaskError, match=rule):
        next_draft(_whole(**changes), _ITERATIONS, number, before)


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


@pytest.mark.parametrize("name", _DRAFTS)
def test_a_written_draft_is_read_back_unchanged(tmp_path: Path, name: str) -> None:
    """Drafts of every kind and with any labels survive."""
    (tmp_path / "draft.toml").write_text(draft_file.as_toml(_DRAFTS[name]), encoding="utf-8")

    assert _DRAFTS[name] == draft_file.read(tmp_path / "draft.toml", _KEY)


def _json(means: str, low: str = "0") -> str:
    return (
        f'{{"kind": "key-value", "low": {low}, "high": 5, "population": "viewers", '
        f'"means_with_fakes": {means}}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "[" * 100_000),
        '{"kind": "key-value", "means_with_fakes": [1.0]}',
        _json("[1]").replace("key-value", "vector"),
        _json("[1]").replace('"kind": "key-value", ', ""),
        *map(_json, ("3", '["x"]', "[null]", f"[{'9' * 400}]", "[NaN]", "[1e999]")),
        _json("[1]", low="NaN"),
    ],
)
def test_a_file_that_is_not_a_result_of_pairs_is_refused(tmp_path: Path, text: str) -> None:
    """The message names the file."""
    (tmp_path / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"result.json is not a JSON result of key-value data"):
        read_result(tmp_path / "result.json", Iterated, "key-value")


def test_a_missing_or_overlong_result_is_refused_unread(tmp_path: Path) -> None:
    """The message names the reason."""
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_result(tmp_path / "none.json", Iterated, "key-value")
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(SettingsError, match="is too long; at most"):
        read_result(tmp_path / "long.json", Iterated, "key-value")


def test_the_command_reads_a_printed_result_and_writes_the_next_draft(tmp_path: Path) -> None:
    """The result has the format of `shuffledp result --json`."""
    whole, output = tmp_path / "whole.toml", tmp_path / "second.toml"
    whole.write_text(draft_file.as_toml(_whole()), encoding="utf-8")
    task = kind_task("priv-kv", population="viewers")
    result = result_of(task, estimate=kind_collected("key-value").result.estimate)
    printed = {**as_json(result), **result_view(result.estimate, task, most=1).fields}
    (tmp_path / "first.json").write_text(dumps(printed), encoding="utf-8")
    arguments = ["--number", "2", "--after", str(tmp_path / "first.json"), "--output", str(output)]
    outcome = CliRunner().invoke(app, ["iterate", str(whole), "--iterations", "3", *arguments])

    assert 0 == outcome.exit_code
    before = _released(np.linspace(4.0, 1.5, 6))
    assert next_draft(_whole(), 3, 2, before) == draft_file.read(output, _KEY)
