"""Whether shares are estimated without bias, and as precisely as they say."""

from typing import Final

import numpy as np

from analyzer.conclusion import mixture_of
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.simulate.collection import count

_USERS: Final = 2_000_000
_HELD: Final = 0.7
"""Share of the users who hold the first value; the others hold the last."""


def play_estimates(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Collect from many users by the deployed code, without sealing, and compare with the truth."""
    task, mechanism, checks = audited.task, audited.mechanism, Checks()
    users = np.zeros(task.domain_size, dtype=np.int64)
    users[0], users[-1] = int(_HELD * _USERS), _USERS - int(_HELD * _USERS)
    counted = count(task, mechanism, users, rng, one_by_one=False)
    mixture = mixture_of(task, _USERS, counted=counted.n_reports)
    truth = users / _USERS
    shares = mechanism.debias(counted.cells, mixture)
    deviations = np.sqrt(mechanism.variance(truth, mixture))
    for name, item in (("a common value", 0), ("a rarer value", task.domain_size - 1)):
        checks.test(name, fit.of_normal(shares[item], truth[item], deviations[item]))
    if task.domain_size > 2:  # noqa: PLR2004  # a value that nobody holds
        middle = task.domain_size // 2
        checks.test(
            "a value that nobody holds", fit.of_normal(shares[middle], 0.0, deviations[middle])
        )
    finding = checks.finding(
        scenario="estimates",
        title="Shares are estimated without bias",
        heading="correctness",
        sentence="What the analyzer publishes is right on average, with the error that it states.",
        trials=_USERS,
        measured=float(shares[0]),
        expected=float(truth[0]),
        advice="Believe no histogram of this version.",
    )
    return Outcome(findings=(finding,))
