from collections import Counter

import numpy as np
import pytest

from common.errors import PlanError
from common.messages.submission import Outcome
from deploy.load.behaviour import (
    ENVELOPES,
    FLOOD,
    MISBEHAVING,
    Behaviour,
    assign,
    expected_answers,
    is_counted,
    shares_from,
)


def test_one_share_is_split_evenly_over_all_behaviours() -> None:
    """A tenth, by six."""
    assert pytest.approx(dict.fromkeys(MISBEHAVING, 0.1 / 6)) == shares_from("0.1")


def test_shares_may_be_named() -> None:
    """And what is not named does not happen."""
    expected = {Behaviour.MALFORMED: 0.02, Behaviour.DROPPING: 0.5}

    assert expected == shares_from("malformed=.02, dropping=0.5")


@pytest.mark.parametrize(
    "text", ["", "x", "-0.1", "1", "nan", "malformed=1", "honest=0.5", "malformed=", "a=b=c"]
)
def test_what_is_no_share_is_refused(text: str) -> None:
    """Nobody would be honest, or nobody knows what is meant."""
    with pytest.raises(PlanError):
        shares_from(text)


def test_behaviours_are_dealt_to_the_nearest_number_and_the_last_user_is_honest() -> None:
    """The last one closes the batch: a repeat after it would be answered otherwise."""
    for seed in range(50):
        kinds = assign(20, {Behaviour.FLOODING: 0.9}, np.random.default_rng(seed))

        assert 18 == np.count_nonzero(kinds == Behaviour.FLOODING)
        assert Behaviour.HONEST == kinds[-1]


def test_somebody_must_be_honest() -> None:
    """Nine tenths of one user are all of them."""
    with pytest.raises(PlanError, match="at least one must be honest"):
        assign(1, {Behaviour.FLOODING: 0.9}, np.random.default_rng(1))


def test_the_answers_that_each_behaviour_must_get() -> None:
    """One user of each."""
    kinds = np.arange(len(Behaviour), dtype=np.uint8)
    expected = Counter(
        {
            Outcome.STORED: 4,
            Outcome.REPEATED: 1 + FLOOD - 1,
            Outcome.CONFLICT: 1,
            Outcome.MALFORMED: 2,
        }
    )

    assert expected == expected_answers(kinds)
    assert 4 == is_counted(kinds).sum()


def test_every_behaviour_has_its_envelopes() -> None:
    """The table is looked up by number."""
    assert len(Behaviour) == len(ENVELOPES)
