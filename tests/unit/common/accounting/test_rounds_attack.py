"""The computed attack on several rounds, against the accountant's own attack and claim."""

import math

import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.composition import composed_epsilon
from common.accounting.reference.attack import epsilon_lower
from common.accounting.releases import AmplifiedRelease
from common.accounting.rounds_attack import epsilon_of_rounds
from common.mechanisms.reduction import MatchCountReduction

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("crowd", [AnonymitySet(users=1000), AnonymitySet(users=200, dummies=300)])
def test_rounds_prove_no_more_than_is_claimed_and_nearly_as_much(
    *, hashed: bool, crowd: AnonymitySet
) -> None:
    """One round as the accountant's own attack, ten as the composed claim."""
    reduction = MatchCountReduction.for_epsilon(answers=7, local_epsilon=2.0, hashed=hashed)
    one = epsilon_of_rounds(reduction, crowd, 1, 1e-6)
    ten = epsilon_of_rounds(reduction, crowd, 10, 1e-6)
    claim = composed_epsilon([AmplifiedRelease(reduction=reduction, crowd=crowd)] * 10, 1e-6)

    assert (
        0.9 * epsilon_lower(reduction, crowd, 1e-6) < one <= epsilon_upper(reduction, crowd, 1e-6)
    )
    assert 0.85 * claim < ten <= claim


@pytest.mark.parametrize("answers", [3, 4, 5])
def test_rounds_over_few_values_are_computed_too(answers: int) -> None:
    """A dummy's characteristic function is negative there. One round: as the accountant's own."""
    reduction = MatchCountReduction.for_epsilon(answers=answers, local_epsilon=2.0, hashed=False)
    for crowd in (AnonymitySet(users=1000), AnonymitySet(users=1001, dummies=5000)):
        one = epsilon_of_rounds(reduction, crowd, 1, 1e-6)
        claim = composed_epsilon([AmplifiedRelease(reduction=reduction, crowd=crowd)] * 10, 1e-6)

        assert 0.85 * epsilon_lower(reduction, crowd, 1e-6) < one
        assert one <= epsilon_upper(reduction, crowd, 1e-6)
        assert 0.8 * claim < epsilon_of_rounds(reduction, crowd, 10, 1e-6) <= claim


@pytest.mark.parametrize("rounds", [2, 10, 100])
def test_rounds_without_local_noise_are_computed_too(rounds: int) -> None:
    """However many: where nothing bounds the ratio of two chances, it is not raised to them."""
    reduction = MatchCountReduction.for_epsilon(answers=20, local_epsilon=math.inf, hashed=False)
    crowd = AnonymitySet(users=150, dummies=450)
    claim = composed_epsilon([AmplifiedRelease(reduction=reduction, crowd=crowd)] * rounds, 0.01)

    assert 0 < epsilon_of_rounds(reduction, crowd, rounds, 0.01) <= claim


def test_without_a_third_value_rounds_are_not_computed() -> None:
    """Two values are all there are: nothing can be dropped."""
    reduction = MatchCountReduction.for_epsilon(answers=2, local_epsilon=2.0, hashed=False)
    with pytest.raises(ValueError, match="a third value"):
        epsilon_of_rounds(reduction, AnonymitySet(users=1000), 2, 1e-6)
