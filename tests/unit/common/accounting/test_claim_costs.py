"""What the check of a claim may cost a device, whatever the task."""

import math
import subprocess
import sys
from typing import Any, Final

import mpmath
import numpy as np
import pytest

from shuffledp.common.accounting.amplification import DeltaCurve
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.binomial import probabilities
from shuffledp.common.accounting.claims import delta_at_claim
from shuffledp.common.accounting.composition import _connect, _total_loss
from shuffledp.common.accounting.conditional import COARSE_GRID, ConditionalDelta
from shuffledp.common.accounting.count_distributions import Binomial
from shuffledp.common.errors import TaskError
from shuffledp.common.task.domain_spec import MAX_COMPUTED_BUCKETS, EdgesSpec
from shuffledp.common.task.named_dummies import ViewDummies
from tests.support.changed_tasks import changed
from tests.support.protocol_tasks import protocol_task
from tests.support.reductions import of_grr

_LOADED: Final = """
import sys
from shuffledp.common.accounting.claims import delta_at_claim
from shuffledp.common.task.task import Task
for line in sys.stdin:
    delta_at_claim(Task.from_bytes(bytes.fromhex(line)))
print(*(name for name in ("scipy.stats", "dp_accounting") if name in sys.modules))
import shuffledp.lab.planning.planner
print("scipy.stats" in sys.modules)
"""


def test_neither_a_check_nor_a_planner_loads_a_large_library() -> None:
    """Each would take longer to load than a check, or some plans, and fifty megabytes."""
    tasks = map(protocol_task, ("signed", "hierarchy", "puredump", "od-hp", "hybrid"))
    lines = "\n".join(task.to_bytes().hex() for task in tasks)
    command = [sys.executable, "-c", _LOADED]
    found = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)

    assert "\nFalse\n" == found.stdout


def test_more_edges_than_a_device_can_compute_are_refused() -> None:
    """Before any is computed."""
    with pytest.raises(TaskError, match=f"between 2 and {MAX_COMPUTED_BUCKETS}"):
        EdgesSpec(low=0.0, high=1.0, buckets=MAX_COMPUTED_BUCKETS + 1)


@pytest.mark.parametrize(
    "dummies",
    [
        AnonymitySet(users=500, dummies=900),
        AnonymitySet(users=500, dummies=900, known_dummies=300),
        AnonymitySet(users=500, dummies=30, random_dummies=Binomial(70, 0.4)),
        AnonymitySet(users=500, dummies=3, known_dummies=9, random_dummies=Binomial(90, 0.8)),
    ],
    ids=str,
)
def test_two_items_suffice_where_reports_carry_no_noise(dummies: AnonymitySet) -> None:
    """
    Against the sum over all numbers of messages; never below, at most .2 % above.

    Known dummies are subtracted from the messages on two items, which may raise the bound.
    """
    reduction = of_grr(12, math.inf)
    certain = dummies.dummies - dummies.known_dummies
    random: Any = dummies.random_dummies or Binomial(0, 0.0)
    numbers: Any = np.arange(random.trials + 1.0)
    sizes = 1 + np.maximum(0, certain + numbers)
    for epsilon in (0.0, 0.4, 0.9):
        whole = ConditionalDelta(reduction, sizes, COARSE_GRID)
        lower = float(random.probabilities(numbers) @ whole.lower(epsilon))
        upper = float(random.probabilities(numbers) @ whole(epsilon))
        found = DeltaCurve(reduction, dummies, (epsilon,), 1e-3)(epsilon)
        assert lower <= found
        if not dummies.known_dummies:
            assert found <= 1.002 * upper


def test_binomial_probabilities_agree_with_high_precision() -> None:
    """Up to 10^9 trials, within six deviations; and where the result is 0 or 1."""
    mpmath.mp.dps = 40
    for trials in (1, 9, 11, 700, 10**6, 10**9):
        for chance in (1e-9, 0.02, 0.5, 0.999):
            mean, spread = trials * chance, math.sqrt(trials * chance * (1 - chance))
            outcomes = {round(mean + z * spread) for z in (-6, -1, 0, 2, 6)} | {0, trials}
            for k in sorted(each for each in outcomes if 0 <= each <= trials):
                exact = (
                    mpmath.binomial(trials, k)
                    * mpmath.mpf(chance) ** k
                    * (1 - mpmath.mpf(chance)) ** (trials - k)
                )
                [found] = probabilities(np.array([float(k)]), np.array(float(trials)), chance)
                assert abs(found - exact) <= 1e-10 * exact + mpmath.mpf("1e-300")

    edges = probabilities(np.array([-1.0, 0.0, 3.0, 4.0]), np.array(3.0), 1.0)
    assert [0.0, 0.0, 1.0, 0.0] == edges.tolist()


@pytest.mark.parametrize("counts", [(1, 1), (3, 2), (40, 1)])
def test_composition_agrees_with_an_independent_library(counts: tuple[int, int]) -> None:
    """Losses of two randomized responses on one grid; dp-accounting composes by its own code."""
    from dp_accounting.pld import pld_pmf  # noqa: PLC0415  # not in every process that collects

    step, curves, total = 2.0**-5, [], None
    for epsilon, count in zip((0.5, 0.75), counts, strict=True):

        def curve(at: float, epsilon: float = epsilon) -> float:
            return max(math.expm1(epsilon) - math.expm1(at), 0.0) / (math.exp(epsilon) + 1)

        multiples = np.arange(-24, 25)
        deltas = [
            curve(m * step) if m >= 0 else 1 - math.exp(m * step) * (1 - curve(-m * step))
            for m in multiples
        ]
        loss = pld_pmf.create_pmf_pessimistic_connect_dots(step, multiples, deltas).to_dense_pmf()
        loss = loss.self_compose(count) if count > 1 else loss
        total = loss if total is None else total.compose(loss)
        curves.append((_connect(curve, step), count))
    found = _total_loss(curves)

    assert total is not None
    for epsilon in (0.0, 0.3, 1.1, 2.7):
        expected = total.get_delta_for_epsilon(epsilon)
        assert found.delta(epsilon) == pytest.approx(expected, rel=1e-9, abs=1e-13)
    assert found.epsilon(0.01) == pytest.approx(total.get_epsilon_for_delta(0.01), rel=1e-9)


def test_a_loss_that_is_certainly_infinite_stays_so() -> None:
    """A level without dummies reveals its node."""
    task = protocol_task("hierarchy", n_min=1000)
    assert isinstance(task.dummies, ViewDummies)
    bare = changed(task, dummies=ViewDummies(averages=(0, *task.dummies.averages[1:])))

    assert 1 == delta_at_claim(bare)
