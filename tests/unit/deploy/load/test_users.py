"""Simulated users: sealed by their behaviour, kept in a file."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuffledp.common.crypto.hpke import envelope_context, report_context
from shuffledp.common.errors import SettingsError, TaskError
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.deploy.datasets.sources import dataset
from shuffledp.deploy.load.behaviour import ENVELOPES, FLOOD, Behaviour, LoadPlan
from shuffledp.deploy.load.users import SealedUsers, draw_values, seal
from tests.support.kind_tasks import kind_task
from tests.support.protocol_tasks import protocol_task
from tests.support.tasks import PublishedTask, published

_ALL = {kind: 1 / 7 for kind in Behaviour if kind}
_ARRAYS = ("kinds", "values", "envelopes")


@pytest.fixture(scope="module")
def case() -> PublishedTask:
    """A task of 30 items, and its keys."""
    return published(domain_size=30, buckets=5, target_size=100)


@pytest.fixture(scope="module")
def users(case: PublishedTask) -> SealedUsers:
    """Seven users, one of each behaviour."""
    return seal(case.signed, LoadPlan(n_users=7, shares=_ALL, dataset="zipf:30", seed=3))


def test_a_prepared_file_is_read_as_it_was_written(users: SealedUsers, tmp_path: Path) -> None:
    """Only its owner can read it; a damaged one is refused, with what to do."""
    file = tmp_path / "users"
    users.save(file)
    read = SealedUsers.load(file)

    assert users.signed == read.signed
    for name in _ARRAYS:
        np.testing.assert_array_equal(getattr(users, name), getattr(read, name))
    assert 0o600 == file.stat().st_mode & 0o777
    assert 1.0 == pytest.approx(read.truth(7, 30).sum())

    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SettingsError, match="prepare it again"):
        SealedUsers.load(file)
    with pytest.raises(SettingsError, match="nothing cannot be read"):
        SealedUsers.load(tmp_path / "nothing")


def test_each_behaviour_sends_its_submissions(case: PublishedTask, users: SealedUsers) -> None:
    """Honest envelopes open, both of a conflict under one id; malformed and longer ones do not."""
    sent = {Behaviour(kind): users.submissions(user) for user, kind in enumerate(users.kinds)}
    context, size = envelope_context(case.signed.digest()), case.task.envelope_sizes[-1]

    assert [1, 2, FLOOD, 2, 1, 1, 0] == [len(sent[kind]) for kind in Behaviour]
    for kind in (Behaviour.DUPLICATE, Behaviour.FLOODING):
        assert 1 == len({*sent[kind]})
    counted = [*sent[Behaviour.HONEST], sent[Behaviour.FLOODING][0], *sent[Behaviour.CONFLICT]]
    opened = [split_submission(case.shuffler_key.open(one, context)) for one in counted]
    assert (3, 4) == tuple(len({*column}) for column in zip(*opened, strict=True))
    [malformed], [oversized] = sent[Behaviour.MALFORMED], sent[Behaviour.OVERSIZED]
    assert (size, size + 64) == (len(malformed), len(oversized))
    with pytest.raises(Exception, match="does not open"):
        case.shuffler_key.open(malformed, context)


def test_envelopes_carry_the_values_beside_them() -> None:
    """Reports of plain items with hardly any noise name the values."""
    # One of 22 names another item with probability 22 * 4 / (e^20 + 4), below 2e-7.
    case = published(domain_size=5, buckets=0, dummies_per_user=0, local_epsilon=20.0)
    shares = dict.fromkeys((Behaviour.DUPLICATE, Behaviour.FLOODING, Behaviour.CONFLICT), 0.1)
    made = seal(case.signed, LoadPlan(n_users=20, shares=shares, dataset="zipf:5", seed=5))
    digest = case.signed.digest()
    expected = np.repeat(made.values, ENVELOPES[made.kinds]).tolist()
    sealed = [
        split_submission(case.shuffler_key.open(one, envelope_context(digest)))[1]
        for one in made.rows(0, len(made.sizes))
    ]
    raw = b"".join(case.analyzer_key.open(one, report_context(digest)) for one in sealed)

    assert 22 == len(expected)
    assert len({*expected}) > 2
    assert (
        expected == np.frombuffer(raw, dtype=mechanism_of(case.task).report_dtype)["item"].tolist()
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, lambda rows: np.concatenate([rows, rows[:1]])) for name in _ARRAYS),
        *((name, lambda rows: rows + 200) for name in ("kinds", "values")),
    ],
)
def test_arrays_that_do_not_fit_the_task_are_refused(
    users: SealedUsers, tmp_path: Path, name: str, change: Callable[[Any], Any]
) -> None:
    """There is one row too many, or an unknown item or behaviour."""
    fields: dict[str, Any] = {name: change(getattr(users, name))}
    replace(users, **fields).save(tmp_path / "users")

    with pytest.raises(SettingsError, match="prepare it again"):
        SealedUsers.load(tmp_path / "users")


def test_every_counted_user_is_another_person_of_the_data_set() -> None:
    """All people of a synthetic distribution are drawn once; other users have no person."""
    kinds = np.array([Behaviour.HONEST, Behaviour.MALFORMED, Behaviour.CONFLICT] * 50, np.uint8)
    task = published(domain_size=9, buckets=3).task
    values, items = draw_values("zipf:9", kinds, task, np.random.default_rng(1))

    expected = dataset("zipf:9", 100).counts.tolist()
    assert expected == np.bincount(items[kinds != Behaviour.MALFORMED], minlength=9).tolist()
    assert 0 == items[kinds == Behaviour.MALFORMED].sum()
    assert values == items.tolist()
    with pytest.raises(TaskError, match=r"915 items and the task has 9: .* zipf:9"):
        draw_values("ipums1940_city", kinds, task, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("cells", "task", "expected"),
    [
        (["b", "a", " b "], {"domain_size": 2, "labels": ("b", "a")}, [0, 0, 1]),
        (["30", "10", "#1"], {"domain_size": 3, "labels": ("10", "20", "30")}, [0, 1, 2]),
        (["9", "10", "9"], {"domain_size": 2}, [0, 0, 1]),
        (["0.5", "39", "5"], {"edges": EdgesSpec(low=0.0, high=40.0, buckets=4)}, [0, 0, 3]),
        (["10", "2"], {"domain_size": 3, "labels": ("10", "20", "30")}, "row 2 of mine.csv: a "),
        (["5", "41"], {"edges": EdgesSpec(low=0.0, high=40.0, buckets=4)}, "row 2 of mine.csv: a "),
    ],
)
def test_a_files_values_are_the_tasks_items(
    tmp_path: Path, cells: list[str], task: dict[str, Any], expected: list[int] | str
) -> None:
    """By label, or by bucket, as devices read them; by place where items have no names."""
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["value", *cells]), encoding="utf-8")
    fields = {"domain_size": 1, "labels": (), "breakdown": None, **task}
    drawn = partial(draw_values, str(path), np.zeros(len(cells), np.uint8))
    if isinstance(expected, str):
        with pytest.raises(TaskError, match=expected):
            drawn(protocol_task("sh", **fields), np.random.default_rng(1))
        return

    assert expected == sorted(drawn(protocol_task("sh", **fields), np.random.default_rng(1))[1])


def test_a_files_values_of_other_kinds_are_sent(tmp_path: Path) -> None:
    """Each person's number is another row; a row that devices refuse is named."""
    path = tmp_path / "mine.csv"
    path.write_text("value\n7\n7.5\n\n7\n", encoding="utf-8")
    task, kinds = kind_task("piecewise"), np.zeros(3, np.uint8)
    values, _ = draw_values(str(path), kinds, task, np.random.default_rng(1))

    assert ["7", "7", "7.5"] == sorted(map(str, values))
    path.write_text("value\n7\n24.5\n25\n24.5\n", encoding="utf-8")
    with pytest.raises(TaskError, match=r"row 2 .* between 0 and 24 .* break a rule: 3"):
        draw_values(str(path), kinds, task, np.random.default_rng(1))
