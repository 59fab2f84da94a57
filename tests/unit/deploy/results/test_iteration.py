import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from typer.testing import CliRunner

from analyzer.task_builder import complete
from common.errors import SettingsError, TaskError
from common.task.draft import NumberDraft, PairDraft, TaskDraft, TextDraft
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from deploy.cli import app
from deploy.results.iteration import Iterated, next_draft, read_iterated
from deploy.results.result_json import as_json
from deploy.results.result_view import result_view
from deploy.tasks import drafts as draft_file
from deploy.terminal.json_output import dumps
from tests.support.kind_results import kind_collected, result_of
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_draft_fields, kind_task
from tests.support.tasks import draft

_KEY: Final = bytes(31) + b"\x09"
_ITERATIONS: Final = 3


def _whole(**changes: Any) -> TaskDraft:
    """Give a draft for all iterations: six keys, stars from 0 to 5, ε 4."""
    fields = {"population": "viewers", "local_epsilon": 4.0}
    return draft(**kind_draft_fields("priv-kv", **fields) | changes)


def _released(means: Any, **changes: Any) -> Iterated:
    """Say what an iteration released, of the very people and range of the draft."""
    return Iterated(**{"means": means, "low": 0.0, "high": 5.0, "population": "viewers", **changes})


def _next(number: int, whole: TaskDraft | None = None) -> TaskDraft:
    before = None if number == 1 else _released(np.linspace(1.0, 4.0, 6))
    return next_draft(whole or _whole(), _ITERATIONS, number, before)


def _pairs(one: TaskDraft) -> PairDraft:
    assert one.pairs is not None
    return one.pairs


def _read_back(tmp_path: Path, text: str) -> TaskDraft:
    (tmp_path / "draft.toml").write_text(text, encoding="utf-8")
    return draft_file.read(tmp_path / "draft.toml", _KEY)


@pytest.mark.parametrize("epsilon", [4.0, 0.1, 0.3, 7.7])
def test_iterations_cost_no_more_than_the_whole(epsilon: float) -> None:
    """Exactly summed; and next to nothing is left."""
    spent = sum(
        Fraction(_next(number, _whole(local_epsilon=epsilon)).local_epsilon)
        for number in range(1, _ITERATIONS + 1)
    )

    assert spent <= Fraction(epsilon)
    assert float(spent) == pytest.approx(epsilon)


def test_no_iteration_is_refused_by_the_budget_of_the_whole() -> None:
    """All charges are at most the total local ε together; a stated budget stays."""
    assert {4.0} == {_next(number).budget_epsilon for number in (1, 2, 3)}
    assert 9.0 == _next(2, _whole(budget_epsilon=9.0)).budget_epsilon
    tasks = [
        complete(_next(number), analyzer_key=_KEY, nonce=bytes(32))
        for number in range(1, _ITERATIONS + 1)
    ]
    charged = sum(task.central_epsilon for task in tasks)

    assert 0 < charged < 4.0
    assert all(task.central_epsilon <= task.budget_epsilon for task in tasks)


def test_only_the_first_iteration_pays_for_keys() -> None:
    """Half of the whole by default; later ones toss a fair coin."""
    first, second = _next(1), _next(2)

    assert first.local_epsilon * _pairs(first).key_share == pytest.approx(2.0)
    assert 0.0 == _pairs(second).key_share
    assert second.local_epsilon == pytest.approx(2.0 / _ITERATIONS)


def test_means_become_fakes_in_the_range_of_the_draft() -> None:
    """What noise carried beyond the range is put back to its ends."""
    means = np.array([-3.0, 0.0, 1.25, 2.5, 5.0, 99.0])
    one = next_draft(_whole(), _ITERATIONS, 2, _released(means))

    assert [0.0, 0.0, 1.25, 2.5, 5.0, 5.0] == pytest.approx(list(_pairs(one).fakes))
    given = PairDraft(low=0.0, high=5.0, fakes=(1.0,) * 6)
    assert () == _pairs(_next(1)).fakes
    assert (1.0,) * 6 == _pairs(_next(1, _whole(pairs=given))).fakes


def test_everything_else_of_a_draft_stays() -> None:
    """Whom it asks, when, and how many."""
    one = _next(2)
    changed = {"local_epsilon", "pairs", "budget_epsilon"}

    for field in dataclasses.fields(TaskDraft):
        if field.name not in changed:
            assert getattr(_whole(), field.name) == getattr(one, field.name)


@pytest.mark.parametrize(
    ("changes", "number", "before", "rule"),
    [
        ({"protocol": "od-hp"}, 1, None, "od-hp is not for pairs"),
        ({"protocol": "duchi"}, 1, None, "duchi is not for pairs"),
        ({"population": ""}, 1, None, "names no population"),
        ({}, 0, None, "number is 0; there are 3 iterations"),
        ({}, 4, _released(np.zeros(6)), "number is 4; there are 3 iterations"),
        ({}, 1, _released(np.zeros(6)), "the first iteration follows no result"),
        ({}, 2, None, "number is 2; the result of the iteration before is missing"),
        ({}, 2, _released(np.zeros(5)), "the result has 5 means and the draft 6"),
        ({"local_epsilon": 0.0}, 1, None, "local_epsilon is 0.0"),
        ({"local_epsilon": float("inf")}, 1, None, "local_epsilon is inf"),
        (
            {"pairs": PairDraft(low=2.0, high=2.0)},
            2,
            _released(np.zeros(6)),
            "low must be below high",
        ),
        (
            {},
            2,
            _released(np.zeros(6), high=10.0),
            "range is 0.0 to 10.0, and the draft's 0.0 to 5",
        ),
        ({}, 2, _released(np.zeros(6), population="staff"), "of another population"),
    ],
)
def test_an_iteration_that_there_is_not_is_refused(
    changes: dict[str, Any], number: int, before: Iterated | None, rule: str
) -> None:
    """By the rule, and the number that broke it."""
    with pytest.raises(TaskError, match=rule):
        next_draft(_whole(**changes), _ITERATIONS, number, before)


_DRAFTS: Final[dict[str, TaskDraft]] = {
    **{name: draft(_KEY, **kind_draft_fields(name)) for name in OF_OTHER_KINDS},
    "items": draft(_KEY),
    "labels": draft(
        _KEY,
        domain_size=5,
        buckets=0,
        labels=("a,b", '"q"\\', "ü\n\t", "\N{GRINNING FACE}", "\x7f"),
    ),
    "no noise": draft(_KEY, local_epsilon=float("inf")),
    "basic": draft(
        _KEY,
        **kind_draft_fields("rappor", labels=("yes", "no"), domain_size=2, texts=TextDraft(bits=2)),
    ),
    "one-time": draft(
        _KEY, **kind_draft_fields("rappor", texts=TextDraft(unset=0.0, set=1.0, bits=64))
    ),
    "small numbers": draft(
        _KEY, **kind_draft_fields("duchi", numbers=NumberDraft(low=-1e-300, high=1e12), delta=1e-15)
    ),
    "tables": draft(
        _KEY,
        dummies_per_user=0.0,
        dummies=DummySpec(law="binomial", per_user=1, trials=4, extra_weight=9, most=4),
        shuffler=ShufflerSpec(law="geometric", peak=3, left_weight=5, right_weight=7, most=20),
    ),
    "budget": draft(_KEY, population="staff", budget_epsilon=3.0, budget_delta=1e-5),
    "first": _next(1),
    "second": _next(2),
}


@pytest.mark.parametrize("name", _DRAFTS)
def test_a_draft_that_is_written_is_read_back_as_it_was(tmp_path: Path, name: str) -> None:
    """Of every kind; whatever its labels hold."""
    assert _DRAFTS[name] == _read_back(tmp_path, draft_file.as_toml(_DRAFTS[name]))


def _printed() -> str:
    """Print what `shuffledp result --json` prints of an iteration."""
    task = kind_task("priv-kv", population="viewers")
    result = result_of(task, estimate=kind_collected("key-value").result.estimate)
    return dumps({**as_json(result), **result_view(result.estimate, task, most=1).fields})


def test_the_means_of_a_result_are_read_from_its_json(tmp_path: Path) -> None:
    """As `shuffledp result --json` writes them, in the task's range: with fakes [YHMZ19]."""
    (tmp_path / "result.json").write_text(_printed(), encoding="utf-8")
    found = read_iterated(tmp_path / "result.json")

    assert np.linspace(4.0, 1.5, 6).tolist() == found.means.tolist()
    assert (0.0, 5.0, "viewers") == (found.low, found.high, found.population)


def _json(means: str, low: str = "0") -> str:
    """Write as JSON what is read of a result."""
    return (
        f'{{"kind": "key-value", "low": {low}, "high": 5, "population": "viewers", '
        f'"means_with_fakes": {means}}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "7", "{}", "[" * 100_000),
        '{"kind": "key-value"}',
        '{"kind": "key-value", "means_with_fakes": [1.0]}',
        '{"kind": "mean", "means": [1.0]}',
        _json("[1]").replace("key-value", "vector"),
        *map(_json, ("3", '["x"]', "[null]", f"[{'9' * 400}]", "[NaN]", "[1e999]")),
        _json("[1]", low="null"),
        _json("[1]", low="NaN"),
    ],
)
def test_a_file_that_is_not_a_result_of_pairs_is_refused(tmp_path: Path, text: str) -> None:
    """By its name."""
    (tmp_path / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"result.json is not a result of key-value data"):
        read_iterated(tmp_path / "result.json")


def test_a_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_iterated(tmp_path / "none.json")


def test_a_file_of_gigabytes_is_no_result(tmp_path: Path) -> None:
    """It is not even read."""
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(SettingsError, match="too long to be a result"):
        read_iterated(tmp_path / "long.json")


def test_the_command_writes_what_the_function_gives(tmp_path: Path) -> None:
    """From the draft and the result of the iteration before, for `task create`."""
    whole, output = tmp_path / "whole.toml", tmp_path / "second.toml"
    whole.write_text(draft_file.as_toml(_whole()), encoding="utf-8")
    (tmp_path / "first.json").write_text(_printed(), encoding="utf-8")
    outcome = CliRunner().invoke(
        app,
        [
            *("iterate", str(whole), "--iterations", "3", "--number", "2"),
            *("--after", str(tmp_path / "first.json"), "--output", str(output)),
        ],
    )

    assert 0 == outcome.exit_code
    before = _released(np.linspace(4.0, 1.5, 6))
    assert next_draft(_whole(), 3, 2, before) == draft_file.read(output, _KEY)
