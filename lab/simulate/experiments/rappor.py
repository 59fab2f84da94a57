"""
Decode RAPPOR reports of known populations under several settings.

The first population is COVID-19 cases by US state, after [HZ22]; the paper's 26 states and
parameters are not available. The second is strings of exponentially falling shares, with as many
absent candidates, after [EPK14] and [GRappor]. Bit counts are drawn from their exact distribution.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from scipy import stats

from shuffledp.common.mechanisms.base import Counts
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.deploy.datasets.names import COVID_US_STATES
from shuffledp.deploy.datasets.sources import apportion, load
from shuffledp.deploy.results.decoder import LEVEL, decode
from shuffledp.lab.simulate.plot import Axes, Point
from shuffledp.lab.simulate.table import Progress, Report

_NO_STATES: Final = (
    *("American Samoa", "Diamond Princess", "District of Columbia", "Grand Princess", "Guam"),
    *("Northern Mariana Islands", "Puerto Rico", "Virgin Islands"),
)
_PRESENT: Final = 100
_ABSENT: Final = 100
_USERS: Final = 1_000_000
_SCALE: Final = 20.0
"""Ranks over which a share falls to 1/e: not stated in the paper, but it affects detections."""
_MAX_NAMES: Final = 60
"""Maximum number of candidates that a figure labels by name."""

_PARAMETERS: Final = "khmfpq"
"""Symbols of [EPK14]: bits, hashes, cohorts, and three probabilities."""
Setting = tuple[int, int, int, float, float, float]
_DEMONSTRATION: Final[Setting] = (32, 1, 64, 0.5, 0.25, 0.75)
"""Parameters of the public demonstration [GRappor]."""
STATE_SETTINGS: Final[tuple[Setting, ...]] = (
    (32, 2, 16, 0.5, 0.5, 0.75),
    _DEMONSTRATION,
    (128, 2, 8, 0.75, 0.5, 0.75),
)
_EXPONENTIAL_SETTINGS: Final[tuple[Setting, ...]] = (
    # Noise as in the paper's simulations, filter length as in its Chrome collection.
    (128, 2, 16, 0.5, 0.5, 0.75),
    _DEMONSTRATION,
)


def states(seed: int, progress: Progress, n_states: int = 26) -> Report:
    """Collect a report of every COVID-19 case in the alphabetically first states, and decode."""
    names, people = state_people(n_states)
    title = f"COVID-19 cases until 18 April 2021 in {n_states} US states"
    return _report(title, run(names, people, STATE_SETTINGS, seed, progress), seed)


def exponential(seed: int, progress: Progress) -> Report:
    """Collect strings v1, v2, … of falling shares, and decode; candidates w1, w2, … are absent."""
    names = [f"v{rank}" for rank in range(1, _PRESENT + 1)]
    names += [f"w{rank}" for rank in range(1, _ABSENT + 1)]
    people = np.append(exponential_people(_PRESENT, _USERS), np.zeros(_ABSENT, dtype=np.int64))
    title = f"{_PRESENT} strings of exponential shares, and {_ABSENT} absent candidates"
    return _report(title, run(names, people, _EXPONENTIAL_SETTINGS, seed, progress), seed)


def state_people(n_states: int) -> tuple[list[str], Counts]:
    """Return the names of the alphabetically first states, and their numbers of cases."""
    data = load(COVID_US_STATES)
    cases = dict(zip(data.labels, data.counts.tolist(), strict=True))
    names = sorted(cases.keys() - set(_NO_STATES))[:n_states]
    return names, np.array([cases[name] for name in names])


def exponential_people(present: int, n_users: int) -> Counts:
    """Return the number of users of each rank r = 0, 1, …, in proportion to e^(-r/20)."""
    return apportion(np.exp(-np.arange(present) / _SCALE), n_users)


def run(
    names: Sequence[str], people: Counts, settings: Sequence[Setting], seed: int, progress: Progress
) -> list[dict[str, Any]]:
    """Collect a report from every user under each setting, and decode; return JSON fields."""
    figures = list[dict[str, Any]]()
    present = np.flatnonzero(people)
    texts = [names[index] for index in present.tolist()]
    seeds = np.random.SeedSequence(seed).spawn(len(settings))
    for setting, setting_seed in zip(settings, seeds, strict=True):
        bits, hashes, cohorts = setting[:3]
        f, p, q = map(Fraction, setting[3:])
        spec = Rappor.specify(bits=bits, hashes=hashes, cohorts=cohorts, f=f, p=p, q=q)
        mechanism = Rappor.of(spec, ())
        cells = mechanism.sample_cells(people[present], texts, np.random.default_rng(setting_seed))
        decoding, n_users = decode(mechanism, cells, names), int(people.sum())
        lenient = stats.false_discovery_control(decoding.p_values) <= LEVEL
        figures.append(
            {
                **dict(zip(_PARAMETERS, map(float, setting), strict=True)),
                "local_epsilon": mechanism.local_epsilon,
                "permanent_epsilon": mechanism.permanent_epsilon,
                "candidates": list(names),
                "people": people.tolist(),
                "counts": (decoding.shares * n_users).tolist(),
                "standard_errors": (decoding.share_errors * n_users).tolist(),
                "p_values": decoding.p_values.tolist(),
                "detected": decoding.detected.tolist(),
                "detected_by_false_discovery_rate": lenient.tolist(),
                "unexplained": decoding.unexplained * n_users,
                "unexplained_error": decoding.unexplained_error * n_users,
                "l1": float(np.abs(decoding.shares - people / n_users).sum()),
            }
        )
        progress(len(figures), len(settings))
    return figures


def _report(title: str, figures: Sequence[dict[str, Any]], seed: int) -> Report:
    people = np.array(figures[0]["people"])
    return Report(
        title=title,
        explanation=f"{people.sum():,} reports, {(people > 0).sum()} of {len(people)} candidates "
        f"present; seed {seed}. Found: present candidates detected; false: absent candidates "
        f"detected; by Bonferroni, or by Benjamini and Hochberg (FDR), at level {LEVEL:g}. "
        "L1: sum of absolute errors of shares; RMSE: root mean squared error of counts.",
        tables={"Settings": [_cells(row) for row in figures]},
        figures=figures,
        points=[point for row in figures for point in _points(row)],
    )


def _cells(figures: dict[str, Any]) -> dict[str, str]:
    people = np.array(figures["people"])
    counts = {}
    for key, rule in (("detected", ""), ("detected_by_false_discovery_rate", " (FDR)")):
        detected = np.array(figures[key])
        counts[f"found{rule}"] = f"{(detected & (people > 0)).sum()}"
        counts[f"false{rule}"] = f"{(detected & (people == 0)).sum()}"
    return {
        **{letter: f"{figures[letter]:g}" for letter in _PARAMETERS},
        "ε report": rounded_up(figures["local_epsilon"]),
        "permanent ε": rounded_up(float(figures["permanent_epsilon"])),
        "L1": f"{figures['l1']:.4f}",
        **counts,
        "RMSE": f"{np.sqrt(((figures['counts'] - people) ** 2).mean()):,.0f}",
        "unexplained": f"{figures['unexplained']:,.0f}",
    }


def _points(figures: dict[str, Any]) -> list[Point]:
    """Return true shares and their estimates, ± two standard errors."""
    parameters = ", ".join(f"{letter} = {figures[letter]:g}" for letter in _PARAMETERS)
    axes = Axes(parameters, "candidates", "share")
    names, people = figures["candidates"], np.array(figures["people"])
    xs: Sequence[float | str] = names if len(names) <= _MAX_NAMES else range(len(names))
    counts, estimate = figures["counts"], "estimate ± 2 standard errors"
    shares, estimates, errors = (
        np.array([people, counts, figures["standard_errors"]]) / people.sum()
    ).tolist()
    truth = [Point(axes, "truth", x, share) for x, share in zip(xs, shares, strict=True)]
    found = zip(xs, estimates, errors, strict=True)
    return truth + [Point(axes, estimate, x, share, 2 * error) for x, share, error in found]
