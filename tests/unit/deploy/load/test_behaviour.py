import numpy as np
import pytest

from common.errors import PlanError
from deploy.load.behaviour import (
    FLOOD,
    MISBEHAVING,
    Behaviour,
    assign,
    expected_answers,
    is_counted,
    shares_from,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", dict.fromkeys(MISBEHAVING, 0.1 / 6)),
        ("malformed=.02, dropping=0.5", {Behaviour.MALFORMED: 0.02, Behaviour.DROPPING: 0.5}),
    ],
)
def test_shares_are_named_or_split_evenly(text: str, expected: dict[Behaviour, float]) -> None:
    """A behaviour that is not named does not happen."""
    assert pytest.approx(expected) == shares_from(text)


@pytest.mark.parametrize(
    "text", ["", "x", "-0.1", "1", "nan", "malformed=1", "honest=0.5", "malformed=", "a=b=c"]
)
def test_an_invalid_share_is_refused(text: str) -> None:
    """No number, no such behaviour, or no honest user left."""
    with pytest.raises(PlanError):
        shares_from(text)


def test_behaviours_are_dealt_to_the_nearest_number_and_the_last_user_is_honest() -> None:
    """The last one closes the batch: a repeat after it would be answered otherwise."""
    for seed in range(50):
        kinds = assign(20, {Behaviour.FLOODING: 0.9}, np.random.default_rng(seed))

        assert 18 == np.count_nonzero(kinds == Behaviour.FLOODING)
        assert Behaviour.HONEST == kinds[-1]
    with pytest.raises(PlanError, match="at least one must be honest"):
        assign(1, {Behaviour.FLOODING: 0.9}, np.random.default_rng(1))


def test_the_answers_that_each_behaviour_must_get() -> None:
    """One user of each."""
    kinds = np.arange(len(Behaviour), dtype=np.uint8)
    expected = {"stored": 4, "repeated": 1 + FLOOD - 1, "conflict": 1, "malformed": 2}

    assert expected == expected_answers(kinds)
    assert 4 == is_counted(kinds).sum()
