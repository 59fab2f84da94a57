"""Claim a task's central and coalition ε, and check a task's claims."""

from decimal import ROUND_CEILING, Context
from typing import Final

from shuffledp.common.accounting.guarantees import claimed_release
from shuffledp.common.accounting.item_noise import check_sums
from shuffledp.common.accounting.privacy_parameters import MAX_DISTINCT_VIEWS, PrivacyParameters
from shuffledp.common.accounting.releases import Release
from shuffledp.common.errors import AccountingError, PolicyError
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task.task import Task

_EPSILON_MARGIN: Final = 1e-4
"""Relative margin added to a claimed ε."""
_DELTA_MARGIN: Final = 5e-3
"""Relative margin subtracted from δ, since `delta_upper` may exceed the formula itself."""
_CLAIM_CONTEXT: Final = Context(prec=6, rounding=ROUND_CEILING)


def claimable_epsilon(task: Task) -> float:
    """
    Return the central ε that a task may claim: the one at n_min, rounded up to six digits.

    The ε includes a margin, is at most the local ε, and ignores the task's current claim. Raises
    AccountingError if a device could not check the claim.

    Cost: one search for ε, tenths of a second; seconds for many levels or large clusters.
    """
    _check_cost(task)
    return min(_claimable(task, claimed_release(task, task.n_min)), task.local_epsilon)


def claimable_coalition_epsilon(task: Task) -> float:
    """Return the ε that a task may claim against the analyzer together with any one shuffler."""
    if task.relay is None:
        return task.local_epsilon
    return _claimable(task, PrivacyParameters.of(task).either_alone)


def _claimable(task: Task, release: Release) -> float:
    delta = max(task.least_delta, task.delta * (1 - _DELTA_MARGIN))
    epsilon = release.epsilon(delta) * (1 + _EPSILON_MARGIN)
    return float(_CLAIM_CONTEXT.create_decimal_from_float(epsilon))


def check_local_claim(task: Task) -> None:
    """
    Compare a task's integer weights with its local ε, exactly. By devices and checking witnesses.

    Raises PolicyError if the claim is false.
    """
    if not randomizer_of(task).keeps_promise(task.local_epsilon):
        raise PolicyError(
            f"the task's weights do not satisfy its claim of local epsilon {task.local_epsilon}"
        )


def check_central_claim(task: Task) -> None:
    """
    Recompute δ at a task's central ε for n_min users. Run by devices and checking witnesses.

    Raises PolicyError if the claim is false, or too dear to check. Cost: see `delta_at_claim`.
    """
    stated = f"its claim of central epsilon {task.central_epsilon} at delta {task.delta}"
    try:
        found = delta_at_claim(task)
    except AccountingError as error:
        raise PolicyError(f"the task's weights do not certify {stated}: {error}") from error
    if found > task.delta:
        raise PolicyError(
            f"the task's weights do not satisfy {stated}: delta is {rounded_up(found)} for "
            f"{task.n_min} users"
        )


def check_coalition_claim(task: Task) -> None:
    """Raise PolicyError if the noise of either of two shufflers alone does not keep the claim."""
    if task.relay is None:
        return  # the claim is the local one
    found = PrivacyParameters.of(task).either_alone.delta(task.coalition_epsilon)
    if found > task.delta:
        raise PolicyError(
            f"the task's noise does not satisfy its claim of coalition epsilon "
            f"{task.coalition_epsilon} at delta {task.delta}: delta is {rounded_up(found)} if only "
            "one of its two shufflers is honest"
        )


def delta_at_claim(task: Task) -> float:
    """
    Return an upper bound on the δ of a task's claimed central ε at n_min.

    The claim is true if the bound is at most the task's δ. A claim of a finite local ε gives 0.
    Raises AccountingError before any computation if the claim is too dear to check.

    Cost: one evaluation: at most 1.5 s of a core that opens a report in 45 µs, and 100 MB, for
    every valid task. Limits on grids and bins see to it: beyond them a bound is coarser.
    """
    _check_cost(task)
    return claimed_release(task, task.n_min).delta(task.central_epsilon)


def _check_cost(task: Task) -> None:
    noises = zip(*(each.noises for each in task.shufflers), strict=True)
    if (number := len({*noises})) > MAX_DISTINCT_VIEWS:
        raise AccountingError(
            f"the shufflers add {number} different distributions of noise to the task's views; a "
            f"device can check the claim of at most {MAX_DISTINCT_VIEWS}"
        )
    check_sums(task.shuffler.noises)
