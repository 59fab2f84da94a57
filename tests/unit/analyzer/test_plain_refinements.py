"""The analyzer's refinements against plain formulas; a slightly wrong share does not pass."""

from typing import get_args

import numpy as np
import pytest

from analyzer.estimation.histogram import gather, refine
from analyzer.finalize import mixture_of
from common.mechanisms.registry import mechanism_of
from common.protocols import Refinement
from deploy.audit.harness.tasks import sample_task
from deploy.simulate.collection import count
from tests.support.plain_refinements import is_right


@pytest.mark.slow
@pytest.mark.parametrize("way", get_args(Refinement))
def test_a_refinement_is_right_and_one_that_is_three_percent_uniform_is_not(
    way: Refinement,
) -> None:
    """Of a million users, most of whom hold one value."""
    task = sample_task(protocol="murs", domain_size=12, local_epsilon=1.5, buckets=5)
    mechanism, rng = mechanism_of(task), np.random.default_rng(1)
    users = np.array([700_000, *[0] * 10, 300_000])
    counted = count(task, mechanism, users, rng, one_by_one=False)
    mixture = mixture_of(task, 1_000_000, counted=counted.n_reports)
    evidence = gather(mechanism, counted.cells, mixture)
    refined = refine(evidence, way)

    assert is_right(way, evidence, refined)
    assert not is_right(way, evidence, 0.97 * refined + 0.03 / 12)
    assert not is_right(way, evidence, np.full(12, 1 / 12))
