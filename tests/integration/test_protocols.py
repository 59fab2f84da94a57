"""Every protocol from draft to result: devices, shuffling, intake and conclusion in one process."""

import math
from typing import Any

import numpy as np
import pytest

from analyzer.finalize import build_result
from analyzer.intake import open_and_count
from common.crypto.hpke import envelope_context
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId, BatchManifest
from common.messages.result import Result
from common.messages.submission import unpack
from deploy.audit.harness.pools import InlinePool
from shuffler.permutation import permute
from tests.support.tasks import published
from user_agent.contribution import Contributor

_USERS = 400
_PLAIN = {"domain_size": 5, "buckets": 0}
_TRUTH = np.array([0.5, 0.25, 0.15, 0.1, 0.0])


def _run(seed: int, **changes: Any) -> Result:
    """Collect from _USERS users who hold five items in the very shares of _TRUTH."""
    case = published(n_min=_USERS, target_size=_USERS, **changes)
    task, digest, rng = case.task, case.signed.digest(), np.random.default_rng(seed)
    contributor = Contributor(task, digest)
    values = np.repeat(np.arange(5), np.rint(_USERS * _TRUTH).astype(int))
    sealed = []
    for value in values.tolist():
        envelope = contributor.prepare(value, rng)
        content = unpack(case.shuffler_key.open(envelope, envelope_context(digest)), task)
        sealed.append(np.frombuffer(content.sealed_reports, dtype=np.uint8))
    batch = permute(np.concatenate(sealed).reshape(-1, task.sealed_report_bytes), rng)
    mechanism = mechanism_of(task)
    intake = open_and_count(
        [batch.tobytes()], task, digest, mechanism, pool=InlinePool(), key=case.analyzer_key
    )
    manifest = BatchManifest(
        task_digest=digest, batch_id=BatchId(bytes(16)), n_users=_USERS, n_reports=len(batch)
    )
    return build_result(manifest, task, mechanism, intake)


@pytest.mark.parametrize(
    ("changes", "least", "most"),
    [
        ({"protocol": "od-hp", "local_epsilon": 3.0, "dummies_per_user": 1.3}, 400, 800),
        ({"protocol": "puredump", "local_epsilon": math.inf, **_PLAIN}, 399, 401),
        pytest.param(
            {"protocol": "od-hp", "local_epsilon": math.inf, "dummies_per_user": 2.5},
            *(800, 1200),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_task_gives_what_users_hold(changes: dict[str, Any], least: int, most: int) -> None:
    """
    Every estimate within seven of its standard errors, the dummies counted, both guarantees.

    Seed 7; an item's count is a sum of independent draws with a mean of 16 and more, off by so much
    with probability 3e-9 among five items and 3e-10 among a hundred: each of these tests fails by
    chance over seeds with probability below 1e-7.
    """
    result = _run(7, **changes)
    histogram = result.histogram
    truth = np.zeros(len(histogram.frequencies))
    truth[:5] = _TRUTH

    assert 0 == sum(result.refused.values())
    assert least < result.n_dummies < most
    assert (np.abs(histogram.frequencies - truth) <= 7 * histogram.standard_errors).all()
    assert histogram.refined.sum() == pytest.approx(1)
    assert changes["protocol"] == result.protocol
    assert changes["local_epsilon"] == result.local_epsilon
    assert math.isfinite(result.guarantees[0].epsilon)
    assert result.guarantees[0].epsilon <= changes["local_epsilon"]
    assert changes["local_epsilon"] == result.guarantees[1].epsilon
