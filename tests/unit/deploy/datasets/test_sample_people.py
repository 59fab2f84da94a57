from collections.abc import Mapping
from functools import cache
from typing import Final, cast, get_args

import numpy as np
import pytest

from analyzer.task_builder import complete
from common.errors import TaskError
from common.protocols import Kind, protocol_named
from common.task.task import Task
from deploy.datasets.sample_people import DEMO_KINDS, MAX_MADE_UP, SamplePeople, sample_people
from deploy.tasks.demo_task import closing_draft
from tests.support.kind_tasks import OTHER_KINDS
from tests.support.protocol_tasks import ANALYZER_KEY, SHUFFLER_KEY
from user_agent.encoding import encoder_for

_USERS: Final = 300
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@cache
def _people(kind: Kind, seed: int = 4) -> SamplePeople:
    return sample_people(kind, _USERS, seed)


def _task(people: SamplePeople) -> Task:
    draft = closing_draft(people.draft, _USERS, now=2e9, shuffler_key=SHUFFLER_KEY.public_key().raw)
    return complete(draft, analyzer_key=ANALYZER_KEY.public_key().raw, nonce=bytes(32))


@pytest.mark.parametrize("kind", _KINDS)
def test_so_many_people_as_were_asked_for_are_drawn(kind: Kind) -> None:
    """Of the kind that was asked for, each with a sentence of what a value is."""
    people = _people(kind)

    assert (kind, _USERS) == (people.kind, len(people.values))
    assert kind == protocol_named(people.draft.get("protocol", "od-hp")).kind
    assert people.title.endswith(".")


@pytest.mark.parametrize("kind", _KINDS)
def test_the_demo_s_task_takes_every_value(kind: Kind) -> None:
    """Laid out as the user agent does."""
    people, rng = _people(kind), np.random.default_rng(1)
    lay_out = encoder_for(_task(people), None)
    for value in people.values:
        lay_out(value, rng)


@pytest.mark.parametrize("kind", _KINDS)
def test_the_same_seed_draws_the_same_people(kind: Kind) -> None:
    """And another one others."""
    again = sample_people(kind, _USERS, 4)

    assert _people(kind).values == again.values
    assert _people(kind).truth.tolist() == again.truth.tolist()
    assert _people(kind).values != sample_people(kind, _USERS, 5).values


def test_the_truth_of_items_is_their_share() -> None:
    """Counted one by one."""
    people = _people("categorical")
    shares = [people.values.count(item) / _USERS for item in range(len(people.truth))]

    assert shares == people.truth.tolist()


def test_the_truth_of_texts_is_that_of_the_candidates() -> None:
    """Ten of which nobody holds."""
    people = _people("string")
    shares = [people.values.count(text) / _USERS for text in people.candidates]

    assert shares == people.truth.tolist()
    assert 10 == len(people.candidates) - len(set(people.candidates[:-10]))
    assert [0.0] * 10 == people.truth[-10:].tolist()


@pytest.mark.parametrize("kind", ["mean", "vector"])
def test_the_truth_of_numbers_is_their_mean(kind: Kind) -> None:
    """Of each number over the people."""
    people = _people(kind)
    table = np.array(people.values).reshape(_USERS, -1)

    assert table.mean(axis=0) == pytest.approx(people.truth)
    assert len(people.draft["labels"]) == len(people.truth)


def test_the_truth_of_pairs_is_who_owns_a_key_and_the_mean_of_its_values() -> None:
    """Owners alone count for the mean."""
    people = _people("key-value")
    pairs = [cast("Mapping[int, float]", value) for value in people.values]
    assert people.true_means is not None
    for film, (share, mean) in enumerate(zip(people.truth, people.true_means, strict=True)):
        stars = [value[film] for value in pairs if film in value]
        assert len(stars) / _USERS == share
        assert np.mean(stars) == pytest.approx(mean)


@pytest.mark.parametrize("n_users", [0, -1, MAX_MADE_UP + 1, 10**9])
@pytest.mark.parametrize("kind", _KINDS)
def test_so_many_people_are_refused_before_they_are_drawn(kind: Kind, n_users: int) -> None:
    """The message names how many there are."""
    if kind not in {"mean", "vector", "key-value"} and n_users == MAX_MADE_UP + 1:
        n_users = 10**8
    with pytest.raises(TaskError, match=f"users is {n_users}"):
        sample_people(kind, n_users, 1)


def test_somebody_who_owns_a_key_that_nobody_else_owns_is_no_mistake() -> None:
    """With one person most films have no owner, and their mean is a number all the same."""
    people = sample_people("key-value", 1, 1)

    assert people.true_means is not None
    assert np.isfinite(people.true_means).all()


def test_every_kind_has_a_demonstration() -> None:
    """With words for the help text."""
    assert set(_KINDS) == set(DEMO_KINDS)
    assert set(OTHER_KINDS) < set(DEMO_KINDS)
