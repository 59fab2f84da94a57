"""Rounds whose answers share permanent noise, which cost their sum or ε∞."""

import math
from typing import Any, Final

import pytest

from shuffledp.analyzer.budgets import BudgetedRelease, basis_of, population_budgets
from shuffledp.common.accounting.assumptions import LOCAL
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.accounting.releases import LocalRelease, PermanentRelease, lasting_basis
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.mechanisms.registry import rappor_of
from shuffledp.common.messages.guarantee import REPLACE_PERMANENT, rounded_up
from shuffledp.common.messages.ledger_entry import ChainHead
from shuffledp.deploy.pages.result_page import releases_page
from shuffledp.deploy.results.ledger import LedgerView
from shuffledp.deploy.tasks.population_budgets import PopulationBudgets, as_json, show
from tests.support.kind_tasks import kind_task, lasting_task
from tests.support.printing import printed


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
    """
    Randomized response reaches it; permanent noise is bounded by any pair of that loss.

    From the local ε on, δ is 0.
    """
    gap = math.exp(2.0) - math.exp(epsilon)
    local, permanent = LocalRelease(local_epsilon=2.0), PermanentRelease(local_epsilon=2.0)

    assert gap / (math.exp(2.0) + 1) == pytest.approx(local.delta(epsilon), rel=1e-12)
    assert gap / math.exp(2.0) == pytest.approx(permanent.delta(epsilon), rel=1e-12)
    assert 0.0 == local.delta(2.0) == permanent.delta(2.0) == permanent.delta(3.0)
    assert 2.0 == permanent.epsilon(1e-6)


_QUESTION: Final[dict[str, Any]] = {
    "local_epsilon": 1.0,
    "scope": b"state",
    "permanent_epsilon": 2.5,
}


@pytest.mark.parametrize(
    ("releases", "epsilon", "basis"),
    [
        ([{}], 1.0, "1, which cost epsilon 1, their sum, below the 2.5"),
        ([{}] * 2, 2.0, "2, which cost epsilon 2, their sum, below the 2.5"),
        ([{}] * 3, 2.5, "3, which cost epsilon 2.5, if each person's text stays the same; their"),
        ([{}] * 30, 2.5, "their sum is 30."),
        ([{}] * 3 + [{"scope": b"city"}] * 2, 4.5, "Answers to a lasting question: 2, which"),
        ([{"permanent_epsilon": math.inf}] * 4, 4.0, "4, which cost epsilon 4, their sum, since"),
    ],
)
def test_answers_to_one_question_cost_at_most_its_permanent_epsilon(
    releases: list[dict[str, Any]], epsilon: float, basis: str
) -> None:
    """Of each question the sum or ε∞, whichever is less, beside other releases; and which it is."""
    lasting = [PermanentRelease(**_QUESTION | changes) for changes in releases]
    other = LocalRelease(local_epsilon=0.5)

    assert epsilon == composed_epsilon(lasting, 1e-6)
    assert epsilon + 0.5 == composed_epsilon([*lasting, other], 1e-6)
    assert basis in lasting_basis(lasting)
    assert "" == lasting_basis([])


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_no_attack_on_the_same_answers_exceeds_their_cost(rounds: int) -> None:
    """
    The exact loss of all reports on one bit, by enumeration; the composed ε is never below it.

    It comes within 1 % of ε∞ after 200 rounds, so no smaller figure would hold.
    """
    rappor = Rappor.specify(bits=5, f=0.5, p=0.25, q=0.75, encoding="labels")
    mechanism = Rappor.of(rappor, list("abcde"))
    f, p, q = 0.5, 0.25, 0.75

    def loss(n: int) -> float:
        """Return twice the largest loss of a bit: two texts differ in two bits."""
        kept, odds = 1 - f / 2, (q / p) ** n
        return 2 * math.log((kept * odds + f / 2) / (f / 2 * odds + kept))

    release = PermanentRelease(
        local_epsilon=mechanism.local_epsilon,
        scope=b"",
        permanent_epsilon=mechanism.permanent_epsilon,
    )
    assert loss(rounds) <= composed_epsilon([release] * rounds, 1e-6)
    assert loss(200) == pytest.approx(composed_epsilon([release] * 200, 1e-6), rel=0.01)


def test_the_ledger_counts_a_lasting_question_at_most_its_permanent_epsilon() -> None:
    """Three releases and more cost ε∞; tables and JSON say so, and say the sum before."""
    release = BudgetedRelease.of(lasting_task(), 2000, 0)
    most = rappor_of(lasting_task()).permanent_epsilon
    alone, *_, last = spent = [
        population_budgets([release] * n, [(9.0, 1e-6)])[0].spent_epsilon for n in (1, 2, 3, 30)
    ]
    assert [release.local_epsilon, 2 * release.local_epsilon, most, most] == pytest.approx(spent)
    assert last < 3 * alone

    budgets = PopulationBudgets(
        population="staff",
        releases=30,
        budgets=population_budgets([release] * 30),
        basis=basis_of([release] * 30),
    )
    stated = f"30, which cost epsilon {rounded_up(most)}, if each person's text stays the same"
    assert stated in printed(lambda console: show([budgets], console), width=400)
    assert stated in as_json(budgets)["basis"]
    page = releases_page(LedgerView([], ChainHead(), [budgets]))
    assert stated.replace("'", "&#39;") in page
    assert "" == basis_of([])
