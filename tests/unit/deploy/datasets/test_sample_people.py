"""Populations of every kind of data: drawn, synthetic, and encoded by the demo's task."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final, cast, get_args

import numpy as np
import pytest

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.protocols import Kind
from shuffledp.common.task.kinds import ITEM_KINDS
from shuffledp.deploy.datasets.sample_people import MAX_SAMPLE, SamplePeople, sample_people
from shuffledp.deploy.tasks.drafts import closing_draft, with_two_shufflers
from shuffledp.user_agent.contribution import encoder_for
from tests.support.chains import chain
from tests.support.protocol_tasks import ANALYZER_KEY, SHUFFLER_KEY
from tests.support.relays import RELAY_KEY

_USERS: Final = 300
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@cache
def _people(kind: Kind) -> SamplePeople:
    return sample_people(kind, _USERS, 4)


@pytest.mark.parametrize("kind", _KINDS)
def test_the_demos_task_accepts_every_value(kind: Kind) -> None:
    """There are as many values as people; the user agent's code encodes each."""
    people, rng = _people(kind), np.random.default_rng(1)
    draft = closing_draft(people.draft, _USERS, now=2e9, shuffler_key=SHUFFLER_KEY.public_key().raw)
    if draft.relay:
        key = RELAY_KEY.public_key().raw
        draft = replace(draft, relay=replace(draft.relay, key=key))
    task = complete(draft, analyzer_key=ANALYZER_KEY.public_key().raw, nonce=bytes(32))
    encode = encoder_for(task, None)
    for value in people.values:
        encode(value, rng)

    assert (kind, _USERS) == (people.kind, len(people.values))
    assert kind == task.kind


@pytest.mark.parametrize("kind", ITEM_KINDS)
def test_a_task_with_two_shufflers_accepts_the_demos_items(kind: Kind) -> None:
    """Default devices do too: its claims are below their caps, whatever the number of people."""
    key, people = SHUFFLER_KEY.public_key().raw, _people(kind)
    fields = with_two_shufflers(people.draft)
    fields["relay"] = replace(fields["relay"], key=chain()["relay"].key)
    draft = closing_draft(fields, _USERS, now=2e9, shuffler_key=key)
    task = complete(draft, analyzer_key=ANALYZER_KEY.public_key().raw, nonce=bytes(32))
    encode, rng = encoder_for(task, None), np.random.default_rng(1)
    for value in people.values:
        encode(value, rng)

    assert (kind, "sageo", people.draft["title"]) == (task.kind, task.protocol, task.title)
    assert 0.99 < task.central_epsilon < 1
    assert 1.15 < task.coalition_epsilon < 1.16


@pytest.mark.parametrize("kind", _KINDS)
def test_the_same_seed_draws_the_same_people(kind: Kind) -> None:
    """Another seed draws other people."""
    again = sample_people(kind, _USERS, 4)

    assert _people(kind).values == again.values
    assert _people(kind).truth.tolist() == again.truth.tolist()
    assert _people(kind).values != sample_people(kind, _USERS, 5).values


def test_the_truth_of_items_and_texts_is_their_share() -> None:
    """The truth equals counts one by one; ten candidates have no holders."""
    items, texts = _people("categorical"), _people("string")
    shares = [items.values.count(item) / _USERS for item in range(len(items.truth))]
    of_texts = [texts.values.count(text) / _USERS for text in texts.candidates]

    assert shares == items.truth.tolist()
    assert of_texts == texts.truth.tolist()
    assert [0.0] * 10 == of_texts[-10:]


def test_the_truth_of_numbers_and_pairs_is_their_mean() -> None:
    """The truth of pairs has the owners' share too; a film without viewers has a finite mean."""
    guests, viewers, alone = (
        _people("vector"),
        _people("key-value"),
        sample_people("key-value", 1, 1),
    )
    pairs = [cast("Mapping[int, float]", value) for value in viewers.values]

    assert np.array(guests.values).mean(axis=0) == pytest.approx(guests.truth)
    assert len(guests.draft["labels"]) == len(guests.truth)
    assert viewers.true_means is not None
    assert np.isfinite(cast("Vector", alone.true_means)).all()
    for film, (share, mean) in enumerate(zip(viewers.truth, viewers.true_means, strict=True)):
        stars = [value[film] for value in pairs if film in value]
        assert len(stars) / _USERS == share
        assert np.mean(stars) == pytest.approx(mean)


def test_the_truth_of_tables_is_what_devices_report() -> None:
    """The shares of all cells, table by table, as encoded and counted."""
    people, rng = _people("table"), np.random.default_rng(1)
    fields = {**people.draft, "relay": replace(people.draft["relay"], key=chain()["relay"].key)}
    draft = closing_draft(fields, _USERS, now=2e9, shuffler_key=SHUFFLER_KEY.public_key().raw)
    task = complete(draft, analyzer_key=ANALYZER_KEY.public_key().raw, nonce=bytes(32))
    mechanism, encode = Tables.of(task), encoder_for(task, None)
    numbers = np.concatenate([encode(value, rng) for value in people.values])

    assert (mechanism.tally(mechanism.randomize(numbers, rng)) / _USERS == people.truth).all()
    assert 0.99 < task.central_epsilon < 1
    assert task.coalition_epsilon < 4


@pytest.mark.parametrize(
    ("kind", "n_users"),
    [("categorical", -1), ("string", 10**8), ("mean", 0), ("vector", MAX_SAMPLE + 1)],
)
def test_too_many_people_are_refused_before_they_are_drawn(kind: Kind, n_users: int) -> None:
    """The message names the number."""
    with pytest.raises(TaskError, match=f"users is {n_users}"):
        sample_people(kind, n_users, 1)
