"""Simulated users: sealed by their behaviour, kept in a file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.crypto.hpke import envelope_context, report_context
from common.errors import SettingsError, TaskError
from common.mechanisms.registry import mechanism_of
from common.messages.submission import unpack
from deploy.datasets.sources import dataset
from deploy.load.behaviour import ENVELOPES, FLOOD, Behaviour
from deploy.load.plan import LoadPlan
from deploy.load.users import SealedUsers, draw_values, seal
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
    opened = [unpack(case.shuffler_key.open(one, context), case.task) for one in counted]
    assert 3 == len({one.submission_id for one in opened})
    assert 4 == len({one.sealed_reports for one in opened})
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
        unpack(case.shuffler_key.open(one, envelope_context(digest)), case.task)
        for one in made.rows(0, len(made.sizes))
    ]
    raw = b"".join(
        case.analyzer_key.open(one.sealed_reports, report_context(digest)) for one in sealed
    )

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
    values = draw_values("zipf:9", kinds, 9, np.random.default_rng(1))

    expected = dataset("zipf:9", 100).counts.tolist()
    assert expected == np.bincount(values[kinds != Behaviour.MALFORMED], minlength=9).tolist()
    assert 0 == values[kinds == Behaviour.MALFORMED].sum()
    with pytest.raises(TaskError, match=r"915 items and the task has 30: .* zipf:30"):
        draw_values("ipums1940_city", kinds, 30, np.random.default_rng(1))
