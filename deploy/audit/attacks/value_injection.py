"""
Fake users who make an open dictionary find a value that nobody holds.

A crafted report supports one value with certainty, an honest one with probability p, and any other
with q = 1/g. At one level it counts as (1 - q) / (p - q) honest reports of this level, and each of
these stands for as many users as there are levels.
"""

from typing import Final

import numpy as np
from numpy.random import Generator

from common.mechanisms.discovery.prefix_search import estimates
from common.mechanisms.registry import prefix_hashing_of
from deploy.audit.distributions import usual_value
from deploy.audit.finding import Checks, Rows
from deploy.audit.scenario import AuditSubject, Scenario
from deploy.tasks.value_parser import sample_value
from user_agent.contribution import encoder_for

_FAKE_SHARE: Final = 0.05
_MAX_USERS: Final = 200_000
_VALUES: Final = 1000
"""Different values of honest users."""


def run_injection(subject: AuditSubject, rng: Generator, *, factor: float = 1.0) -> Rows:
    """Add crafted reports to those of honest users; `factor` on their weight is the weakness."""
    task, checks = subject.task, Checks()
    mechanism, encode = prefix_hashing_of(task), encoder_for(task, None)
    n_users = max(_VALUES, min(subject.n_users, _MAX_USERS))
    n_fakes = round(_FAKE_SHARE * n_users)
    held = np.concatenate([encode(sample_value(task, rng), rng) for _ in range(_VALUES)])
    honest = mechanism.randomize(held[rng.integers(0, _VALUES, n_users - n_fakes)], rng)
    [target] = encode(usual_value(task), rng)
    last = mechanism.levels - 1
    crafted = mechanism.randomize(np.tile(target, (n_fakes, 1)), rng)
    crafted["level"] = last
    values = np.tile(target, (n_fakes, 1))
    crafted["bucket"] = mechanism.hashed(crafted["level"], crafted["seed"], values)
    shares, numbers = list[float](), list[int]()
    for reports in (honest, np.concatenate([honest, crafted])):
        of_level = reports[reports["level"] == last]
        support = np.array([mechanism.supports(of_level, target).sum()])
        shares.append(float(estimates(mechanism, support, len(of_level))[0][0]))
        numbers.append(len(of_level))
    gain = factor * (1 - mechanism.q) / (mechanism.p - mechanism.q)
    before, after = (share * number for share, number in zip(shares, numbers, strict=True))
    rise = n_fakes * gain
    checks.require("crafted reports are valid", bool(mechanism.valid(crafted).all()))
    off = abs(after - before - rise)
    checks.require("the estimate rises by their weight", off <= 1e-9 * (1 + rise))
    row = checks.finding(
        heading="sender disruption",
        title=f"Fake users with crafted reports on one value, at one of {mechanism.levels} levels",
        sentence=f"A report crafted for a value's whole code counts as {gain:.3g} honest ones of "
        f"its level, which stand for {gain * mechanism.levels:.3g} users. To make a new value "
        f"appear, every level needs its share of such reports: {gain:.3g} users' worth for each.",
        known_limit=True,
        coalition=f"{_FAKE_SHARE:.0%} of the users",
        theorem="[CJG21]",
        expected=rise / numbers[1] - shares[0] * (1 - numbers[0] / numbers[1]),
        measured=shares[1] - shares[0],
        trials=n_users,
    )
    return (row,)


SCENARIO: Final = Scenario(
    name="value-injection",
    title="Fake users who make a value appear that nobody holds",
    check=run_injection,
    weakness="The formula understates the weight of a crafted report by a tenth.",
    weakness_options={"factor": 0.9},
    kinds=("open",),
)
