"""Reports made alone and together: what is tried of mechanisms that toss many coins."""

import numpy as np
import pytest

from deploy.audit.checks import Checks
from deploy.audit.code.singly import check_singly
from deploy.audit.sample_task import sample_task


@pytest.mark.parametrize(
    "items",
    [2, pytest.param(300, marks=pytest.mark.slow), pytest.param(3000, marks=pytest.mark.slow)],
)
def test_honest_reports_of_many_coins_pass(items: int) -> None:
    """Of a thousand such reports some coin is always left undecided by its first bits."""
    task = sample_task(protocol="ldp-oue", domain_size=items, local_epsilon=0.1)
    checks = Checks()
    check_singly(checks, task, np.random.default_rng(1))

    assert not checks.broken
    assert checks.finding(
        scenario="mechanisms", title="", heading="correctness", sentence=""
    ).statistic
