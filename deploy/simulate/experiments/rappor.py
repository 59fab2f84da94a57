"""
RAPPOR of strings whose people are known, under several settings side by side.

COVID-19 cases by US state, after [HZ22]: the paper's 26 states and parameters are not in the text
that could be read, so it is the first 26 by alphabet, or all 50, and settings of this project's
own. And strings of exponential shares among candidates that nobody holds, after the simulations of
[EPK14] and the demonstration of [GRappor]. Reports are not made one by one: their tally is drawn
from its exact distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from common.mechanisms.base import Counts
from common.mechanisms.rappor.decoder import LEVEL, Decoding, decode
from common.mechanisms.rappor.rappor import Rappor
from common.messages.guarantee import rounded_up
from deploy.datasets.catalogue import COVID_US_STATES, load
from deploy.datasets.choice import apportion
from deploy.simulate.plot import Axes, Point
from deploy.simulate.table import Progress, Report
from deploy.terminal.json_output import number_or_text

_NO_STATES: Final = (
    *("American Samoa", "Diamond Princess", "District of Columbia", "Grand Princess", "Guam"),
    *("Northern Mariana Islands", "Puerto Rico", "Virgin Islands"),
)
"""Rows of the data set that are territories, a district, or ships."""
_PRESENT: Final = 100
_ABSENT: Final = 100
_USERS: Final = 1_000_000
_SCALE: Final = 20.0
"""Ranks over which a share falls to 1/e. The paper does not state it, and the number of finds
depends on it strongly."""
_MAX_NAMES: Final = 60
"""Candidates up to which a figure names them."""


class RapporSetting(NamedTuple):
    """RAPPOR's parameters by the letters of its paper [EPK14]."""

    k: int
    h: int
    m: int
    f: Fraction
    p: Fraction
    q: Fraction

    def as_floats(self) -> dict[str, float]:
        """Return the parameters by their letters."""
        return {letter: float(value) for letter, value in self._asdict().items()}


_HALF, _QUARTER, _THREE_QUARTERS = Fraction(1, 2), Fraction(1, 4), Fraction(3, 4)
_DEMONSTRATION: Final = RapporSetting(32, 1, 64, _HALF, _QUARTER, _THREE_QUARTERS)
"""The public demonstration's [GRappor]."""
STATE_SETTINGS: Final = (
    RapporSetting(32, 2, 16, _HALF, _HALF, _THREE_QUARTERS),
    _DEMONSTRATION,
    RapporSetting(128, 2, 8, _THREE_QUARTERS, _HALF, _THREE_QUARTERS),
)
EXPONENTIAL_SETTINGS: Final = (
    # The paper's simulations have the noise, and its Chrome collection the filter's length.
    RapporSetting(128, 2, 16, _HALF, _HALF, _THREE_QUARTERS),
    _DEMONSTRATION,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoded:
    """One setting, and what was decoded of one report from each person."""

    setting: RapporSetting
    mechanism: Rappor
    people: Counts
    """By candidate, shape (M,); candidates that nobody holds have 0."""
    decoding: Decoding

    @property
    def l1(self) -> float:
        """Sum over all candidates of how far the estimated share is off."""
        return float(np.abs(self.decoding.shares - self.people / self.people.sum()).sum())

    @property
    def rmse(self) -> float:
        """Root mean square, over all candidates, of how far the estimated count is off."""
        off = self.decoding.shares * self.people.sum() - self.people
        return float(np.sqrt((off**2).mean()))

    def detected(self, *, strictly: bool) -> NDArray[np.bool_]:
        """Return which candidates are detected: by Bonferroni, or by Benjamini and Hochberg."""
        if strictly:
            return self.decoding.detected
        lenient: NDArray[np.bool_] = stats.false_discovery_control(self.decoding.p_values) <= LEVEL
        return lenient

    def found(self, *, strictly: bool) -> tuple[int, int]:
        """Return how many detected candidates people hold, and how many nobody holds."""
        detected, held = self.detected(strictly=strictly), self.people > 0
        return int((detected & held).sum()), int((detected & ~held).sum())


def states(seed: int, progress: Progress, n_states: int = 26) -> Report:
    """Collect a report of every case in the first states by alphabet."""
    names, people = state_people(n_states)
    title = f"COVID-19 cases until 18 April 2021 in {n_states} US states"
    return _report(title, names, collect(names, people, STATE_SETTINGS, seed, progress), seed)


def exponential(seed: int, progress: Progress) -> Report:
    """Collect strings v1, v2, … of falling shares; nobody holds the candidates w1, w2, …."""
    names = [f"v{rank}" for rank in range(1, _PRESENT + 1)]
    names += [f"w{rank}" for rank in range(1, _ABSENT + 1)]
    people = np.append(exponential_people(_PRESENT, _USERS), np.zeros(_ABSENT, dtype=np.int64))
    title = f"{_PRESENT} strings of exponential shares, and {_ABSENT} that nobody holds"
    return _report(title, names, collect(names, people, EXPONENTIAL_SETTINGS, seed, progress), seed)


def state_people(n_states: int) -> tuple[list[str], Counts]:
    """Return the first states by alphabet, and their cases."""
    data = load(COVID_US_STATES)
    cases = dict(zip(data.labels, data.counts.tolist(), strict=True))
    names = sorted(cases.keys() - set(_NO_STATES))[:n_states]
    return names, np.array([cases[name] for name in names])


def exponential_people(present: int, n_users: int, scale: float = _SCALE) -> Counts:
    """Share people out: to rank r in proportion to e^(-r/scale), by the largest remainders."""
    return apportion(np.exp(-np.arange(present) / scale), n_users)


def collect(
    names: Sequence[str],
    people: Counts,
    settings: Sequence[RapporSetting],
    seed: int,
    progress: Progress,
) -> list[Decoded]:
    """
    Collect a report from everybody under each setting, and decode.

    Args:
        names: Candidates.
        people: How many hold each, shape (M,).
        settings: Each collected with a generator of its own.
        seed: Of all randomness.
        progress: Called after each setting.

    Raises:
        TaskError: A setting is out of range, or cannot tell two candidates apart.

    Cost: a second for some hundred candidates.
    """
    found = list[Decoded]()
    held = np.flatnonzero(people)
    texts = [names[place] for place in held.tolist()]
    seeds = np.random.SeedSequence(seed).spawn(len(settings))
    for setting, each in zip(settings, seeds, strict=True):
        k, h, m, f, p, q = setting
        mechanism = Rappor.of(Rappor.specify(bits=k, hashes=h, cohorts=m, f=f, p=p, q=q), ())
        cells = mechanism.sample_cells(people[held], texts, np.random.default_rng(each))
        decoding = decode(mechanism, cells, names)
        found.append(
            Decoded(setting=setting, mechanism=mechanism, people=people, decoding=decoding)
        )
        progress(len(found), len(settings))
    return found


def _report(title: str, names: Sequence[str], found: Sequence[Decoded], seed: int) -> Report:
    people = found[0].people
    return Report(
        title=title,
        explanation=f"{people.sum():,} reports, {(people > 0).sum()} of {len(names)} candidates "
        f"held by anybody; seed {seed}. Found and false: by Bonferroni, or by Benjamini and "
        f"Hochberg (FDR), at level {LEVEL:g}. L1: how far shares are off, summed over all "
        "candidates; RMSE: how far counts are off.",
        tables={"Settings": [_cells(each) for each in found]},
        figures=[_figures(each, names) for each in found],
        points=[point for each in found for point in _points(each, names)],
    )


def _cells(found: Decoded) -> dict[str, str]:
    strict, lenient = found.found(strictly=True), found.found(strictly=False)
    return {
        **{letter: f"{value:g}" for letter, value in found.setting.as_floats().items()},
        "ε report": rounded_up(found.mechanism.local_epsilon),
        "ε for good": rounded_up(found.mechanism.permanent_epsilon),
        "L1": f"{found.l1:.4f}",
        "found": str(strict[0]),
        "false": str(strict[1]),
        "found (FDR)": str(lenient[0]),
        "false (FDR)": str(lenient[1]),
        "RMSE": f"{found.rmse:,.0f}",
        "off the list": f"{found.decoding.unexplained * found.people.sum():,.0f}",
    }


def _figures(found: Decoded, names: Sequence[str]) -> dict[str, Any]:
    decoding, n_users = found.decoding, int(found.people.sum())
    return {
        **found.setting.as_floats(),
        "local_epsilon": found.mechanism.local_epsilon,
        "permanent_epsilon": number_or_text(found.mechanism.permanent_epsilon),
        "candidates": list(names),
        "people": found.people.tolist(),
        "counts": (decoding.shares * n_users).tolist(),
        "standard_errors": (decoding.share_errors * n_users).tolist(),
        "p_values": decoding.p_values.tolist(),
        "detected": found.detected(strictly=True).tolist(),
        "detected_by_false_discovery_rate": found.detected(strictly=False).tolist(),
        "unexplained": decoding.unexplained * n_users,
        "unexplained_error": decoding.unexplained_error * n_users,
        "l1": found.l1,
    }


def _points(found: Decoded, names: Sequence[str]) -> list[Point]:
    """Return true shares and their estimates, ± two standard errors."""
    decoding = found.decoding
    parameters = ", ".join(
        f"{name} = {value:g}" for name, value in found.setting.as_floats().items()
    )
    axes = Axes(parameters, "candidates", "share")
    truth = (found.people / found.people.sum()).tolist()
    errors = (2 * decoding.share_errors).tolist()
    estimate = "estimate ± 2 standard errors"
    places: Sequence[float | str] = names if len(names) <= _MAX_NAMES else range(len(names))
    return [
        *(Point(axes, "truth", place, share) for place, share in zip(places, truth, strict=True)),
        *(
            Point(axes, estimate, place, share, error)
            for place, share, error in zip(places, decoding.shares.tolist(), errors, strict=True)
        ),
    ]
