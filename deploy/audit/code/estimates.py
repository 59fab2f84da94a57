"""Whether shares are estimated without bias, and as precisely as they say."""

from typing import Final

import numpy as np

from analyzer.conclusion import mixture_of
from common.mechanisms.catalogue import mechanism_of
from common.task import Task
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.panel import panel
from deploy.audit.finding import Outcome
from deploy.simulate.collection import count

_USERS: Final = 2_000_000
_HELD: Final = 0.7
"""Share of the users who hold the first value; the others hold the last."""


def play_estimates(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Collect from many users by the deployed code, without sealing, and compare with the truth."""
    checks = Checks()
    for task in (audited.task, *panel()):
        _check_shares(checks, task, rng)
    finding = checks.finding(
        scenario="estimates",
        title="Shares are estimated without bias",
        heading="correctness",
        sentence="What the analyzer publishes is right on average, with the error that it states.",
        trials=_USERS,
        advice="Believe no histogram of this version.",
    )
    return Outcome(findings=(finding,))


def _check_shares(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    mechanism, last = mechanism_of(task), task.domain_size - 1
    users = np.zeros(task.domain_size, dtype=np.int64)
    users[0], users[last] = int(_HELD * _USERS), _USERS - int(_HELD * _USERS)
    counted = count(task, mechanism, users, rng, one_by_one=False)
    mixture = mixture_of(task, _USERS, counted=counted.n_reports)
    truth = users / _USERS
    shares = mechanism.debias(counted.cells, mixture)
    deviations = np.sqrt(mechanism.variance(truth, mixture))
    items = {"a common value": 0, "a rarer value": last}
    if last > 1:
        items["a value that nobody holds"] = task.domain_size // 2
    for name, item in items.items():
        p_value = fit.of_normal(float(shares[item]), float(truth[item]), float(deviations[item]))
        checks.test(f"{task.mechanism.name}: {name}", p_value)
