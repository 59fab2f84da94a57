"""Rounds whose answers share permanent noise, which only add up."""

import math

import pytest

from common.accounting.assumptions import LOCAL
from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import PrivacyParameters, guarantees
from common.accounting.releases import LocalRelease, PermanentRelease
from common.messages.guarantee import REPLACE_PERMANENT
from tests.support.kind_tasks import kind_task, lasting_task


@pytest.mark.parametrize(
    ("epsilon", "rounds", "delta"), [(0.5, 20, 1e-3), (0.5, 120, 1e-6), (0.01, 120, 1e-6)]
)
def test_rounds_that_share_noise_add_up(epsilon: float, rounds: int, delta: float) -> None:
    """Independent noise composes to less."""
    lasting = [PermanentRelease(local_epsilon=epsilon)] * rounds
    independent = [LocalRelease(local_epsilon=epsilon)] * 20
    beside = composed_epsilon(independent, delta)

    assert composed_epsilon(lasting, delta) == pytest.approx(epsilon * rounds, rel=1e-12)
    assert composed_epsilon([*lasting, *independent], delta) == pytest.approx(
        epsilon * rounds + beside, rel=1e-12
    )
    assert beside <= 20 * epsilon
    assert composed_epsilon([LocalRelease(local_epsilon=0.5)] * 20, 1e-3) < 8.0


def test_one_round_that_shares_noise_costs_its_local_epsilon() -> None:
    """δ is 1 - e^-ε0 at 0, and 0 from the local ε on."""
    release = PermanentRelease(local_epsilon=0.5)

    assert 0.5 == release.epsilon(1e-6)
    assert 1 - math.exp(-0.5) == pytest.approx(release.delta(0.0))
    assert 0.0 == release.delta(0.5) == release.delta(3.0)


def test_the_assumption_of_constant_answers_is_stated() -> None:
    """Only for tasks that share noise."""
    asked = guarantees(lasting_task(), 2000, 0)
    alone = guarantees(kind_task("rappor"), 2000, 0)

    [analyzer] = [row for row in asked if row.coalition == "analyzer"]
    assert REPLACE_PERMANENT == analyzer.neighbouring
    assert LOCAL == analyzer.theorem
    assert any("stays the same" in words for words in analyzer.assumptions)
    assert not any("stays the same" in words for row in alone for words in row.assumptions)
    assert PrivacyParameters.of(kind_task("duchi", population="staff")).reduction is not None


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 1.999])
def test_a_release_has_the_largest_delta_of_its_local_epsilon(epsilon: float) -> None:
    """Randomized response reaches it; permanent noise is bounded by any pair of that loss."""
    gap = math.exp(2.0) - math.exp(epsilon)
    local, permanent = LocalRelease(local_epsilon=2.0), PermanentRelease(local_epsilon=2.0)

    assert gap / (math.exp(2.0) + 1) == pytest.approx(local.delta(epsilon), rel=1e-12)
    assert gap / math.exp(2.0) == pytest.approx(permanent.delta(epsilon), rel=1e-12)
    assert 0.0 == local.delta(2.0) == permanent.delta(2.0)
