from functools import cache
from typing import Final

import numpy as np
import pytest

from analyzer.estimation import histogram
from analyzer.finalize import estimate_result
from common.mechanisms.base import Counts, Mixture
from common.mechanisms.numeric.multi_rphm import MultiRphm
from common.mechanisms.registry import mechanism_of, randomizer_of
from common.messages.result import Estimate, Histogram, KeyValues, Means
from common.protocols import protocols_of
from common.task.draft import PairDraft
from common.task.task import Task
from tests.support.kind_tasks import VALUES, kind_task
from tests.support.protocol_tasks import protocol_task
from user_agent.contribution import encoder_for

_PEOPLE: Final = 1500


def _estimate(task: Task, cells: Counts) -> Estimate:
    return estimate_result(task, randomizer_of(task), cells, Mixture(n_real=_PEOPLE))


@cache
def _collected(protocol: str, people: int = _PEOPLE) -> Estimate:
    return _reported(kind_task(protocol), people)


def _reported(task: Task, people: int) -> Estimate:
    """Let people who all hold the same value report, seed 9, as their devices lay it out."""
    rng = np.random.default_rng(9)
    randomizer, lay_out = randomizer_of(task), encoder_for(task, None)
    reports = [randomizer.randomize(lay_out(VALUES[task.kind], rng), rng) for _ in range(people)]
    empty = randomizer.randomize(lay_out(VALUES[task.kind], rng), rng)[:0]
    return _estimate(task, randomizer.tally(np.concatenate([empty, *reports])))


@pytest.mark.parametrize("protocol", [*protocols_of("mean"), *protocols_of("vector")])
def test_means_are_in_the_units_of_the_task(protocol: str) -> None:
    """
    Within seven errors of what everybody holds: hours from 0 to 24, marks from 1 to 5.

    Multi-RPHM is off by its exact bias. Seed 9; fails by chance over seeds with probability below
    1e-9 (twenty-five figures).
    """
    task, found = kind_task(protocol), _collected(protocol)
    assert isinstance(found, Means)
    expected = np.array(VALUES[task.kind])
    if isinstance(randomizer := randomizer_of(task), MultiRphm):
        expected += 2 * randomizer.bias((expected[np.newaxis] - 3) / 2)  # marks are 3 - 2 to 3 + 2
    off = found.means - expected

    assert (np.abs(off) <= 7 * found.standard_errors).all()
    assert pytest.approx((found.standard_errors**2).mean()) == found.mse_theory


@pytest.mark.parametrize(
    ("protocol", "middle", "half"),
    [(name, 12, 12) for name in protocols_of("mean")]
    + [(name, 3, 2) for name in protocols_of("vector")],
)
def test_a_mean_without_reports_is_the_middle_of_the_range(
    protocol: str, middle: float, half: float
) -> None:
    """Its error is half the range."""
    found = _collected(protocol, 0)
    assert isinstance(found, Means)

    assert {middle} == set(found.means.tolist()) == set(found.shrunk.tolist())
    assert {half} == set(found.standard_errors.tolist())
    assert half**2 == found.mse_theory


def test_pairs_are_in_the_units_of_the_task() -> None:
    """
    Everybody owns keys 0 and 5 and gives them 4.5 and 0 stars of 5; nobody owns the others.

    Within seven errors; the means of owned keys are pulled to the middle by no fakes. Seed 9;
    fails by chance over seeds with probability below 1e-9 (eight figures).
    """
    found = _collected("priv-kv")
    assert isinstance(found, KeyValues)
    owners = found.owners
    assert owners is not None
    off = owners.frequencies - [1, 0, 0, 0, 0, 1]

    assert (np.abs(off) <= 7 * owners.frequency_errors).all()
    assert abs(found.means_with_fakes[0] - 4.5) <= 7 * found.errors_with_fakes[0]
    assert abs(found.means_with_fakes[5] - 0.0) <= 7 * found.errors_with_fakes[5]
    assert abs(owners.means[0] - 4.5) <= 7 * owners.mean_errors[0]
    assert abs(owners.means[5] - 0.0) <= 7 * owners.mean_errors[5]
    assert (found.errors_with_fakes < 1).all()


def test_a_fair_coin_for_keys_reveals_no_owners() -> None:
    """
    A fair coin for the key: who owns key 0 tells 4.5 stars, and who does not own key 1 its fake, 4.

    Within seven errors. Seed 9; fails by chance over seeds with probability below 1e-9 (two
    figures).
    """
    fakes = (1.0, 4.0, 2.0, 2.0, 2.0, 2.0)
    pairs = PairDraft(low=-1.0, high=5.0, key_share=0.0, fakes=fakes)
    found = _reported(kind_task("priv-kv", pairs=pairs), _PEOPLE)
    assert isinstance(found, KeyValues)
    off = found.means_with_fakes[:2] - [4.5, 4.0]

    assert found.owners is None
    assert _PEOPLE == found.reports.sum()
    assert (np.abs(off) <= 7 * found.errors_with_fakes[:2]).all()


@pytest.mark.parametrize("fakes", [(), (5.0, 4.5, 4.0, 1.0, 0.5, 0.0)])
def test_a_key_without_reports_is_unknown(fakes: tuple[float, ...]) -> None:
    """Half of all own it, with an error of a half; its mean is the middle of -1 .. 5."""
    task = kind_task("priv-kv", pairs=PairDraft(low=-1.0, high=5.0, fakes=fakes))
    found = _reported(task, 0)
    assert isinstance(found, KeyValues)

    owners = found.owners
    assert owners is not None

    assert {0.5} == set(owners.frequencies.tolist()) == set(owners.frequency_errors.tolist())
    for means, errors in (
        (owners.means, owners.mean_errors),
        (found.means_with_fakes, found.errors_with_fakes),
    ):
        assert ({2.0}, {3.0}) == (set(means.tolist()), set(errors.tolist()))


@pytest.mark.parametrize("protocol", ["ldp-grr", "ldp-blh", "ldp-sw", "sbin"])
def test_items_are_refined_by_the_protocols_refinement(protocol: str) -> None:
    """Each by its own."""
    task, rng = protocol_task(protocol), np.random.default_rng(9)
    mechanism = mechanism_of(task)
    cells = mechanism.tally(mechanism.randomize(rng.integers(0, 3, _PEOPLE), rng))
    found = _estimate(task, cells)
    assert isinstance(found, Histogram)

    mixture = Mixture(n_real=_PEOPLE)
    expected = histogram.estimate(mechanism, cells, mixture, task.refinement).refined
    assert expected.tolist() == found.refined.tolist()
