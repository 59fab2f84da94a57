"""
Approximate the least error of each protocol by Gaussian differential privacy. Pure.

With n_h honest users, their D dummies, and l answers of blanket probability γ, a release is
approximately μ-GDP with μ² = 2(1-c)·l·(1-γ)²/(n_hγ + D), where c = 1/l for hashing and 0 for GRR:
two of l counts of mean (n_hγ + D)/l change by 1-γ, unless hashes collide, and counts are about
Gaussian [DRS22].
Solved for γ, this gives the least noise for a guarantee. The approximation only guides the search;
stated figures are the exact accountant's. Where the exact accountant has been run, a `Tightness`
records the ratio of approximate to exact μ and corrects later approximations.

Published bounds are about ε² = 14·l·ln(2/δ) / (n_hγ + D) [BBGN19]: without 1-c and 1-γ, and with
ε²/(7·ln(2/δ)) for μ².
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from shuffledp.common.accounting.count_distributions import MAX_COUNT
from shuffledp.common.limits import MAX_ENVELOPE_BYTES
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.hashing.local_hashing import fields, seeds_of
from shuffledp.common.mechanisms.reduction import MatchCountReduction, blanket_of, support_of
from shuffledp.common.mechanisms.support import bernoulli_variance
from shuffledp.common.protocols import PROTOCOLS, ProtocolRow
from shuffledp.common.task.task import envelope_bytes
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.requirements import Requirements

CLOSE_ENOUGH: Final = 1.003
"""Among errors within this factor of the least, the cheapest design wins."""

_MIN_DUMMIES: Final = 0.01
"""Least number of dummies per user to try, besides 0."""
_STEPS: Final = 60
"""Count of log-spaced numbers of dummies to try, besides whole numbers up to _WHOLE."""
_WHOLE: Final = 20
_LARGEST_REPORT: Final = 12
"""Bytes of the largest report."""


def share_errors(
    target: Requirements, answers: Vector, blanket: Vector, dummies: Vector, collision: Vector
) -> Vector:
    """Return a share's predicted squared error for arrays of designs; infinite without a signal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p, q, q_dummy = support_of(answers, blanket, collision)
        errors = bernoulli_variance(
            1 / target.domain_size,
            n_real=target.n_users,
            n_dummies=target.n_users * dummies,
            p=p,
            q=q,
            q_dummy=q_dummy,
        )
    return np.where(np.isfinite(errors) & (blanket < 1), errors, math.inf)


def share_error(target: Requirements, local_epsilon: float) -> tuple[float, float]:
    """Return a share's predicted squared error for plain items without dummies, and the signal."""
    size, none = target.domain_size, np.zeros(())
    items = MatchCountReduction.for_epsilon(answers=size, local_epsilon=local_epsilon, hashed=False)
    answers, blanket = np.array(float(items.answers)), np.array(items.blanket)
    return float(share_errors(target, answers, blanket, none, none)), items.signal


class Tightness(NamedTuple):
    """The logarithm of the ratio of approximate to exact μ, for a number of answers."""

    answers: int
    log_factor: float


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SearchPoint:
    """A protocol with a number of answers and a maximum of dummies, before its noise is chosen."""

    needed: int
    """Dummies per user, rounded up."""
    seeds: int
    """Number of seeds of the hash family, to decode; 0 for plain items."""
    mse: float
    """Approximate mean squared error of a share."""
    protocol: str
    answers: int
    dummies_per_user: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """The approximate least errors for one set of requirements, corrected by exact results."""

    target: Requirements
    name: str = ""
    """The protocol whose designs are wanted; by default that of a point."""
    known: Mapping[bool, list[Tightness]] = field(default_factory=lambda: {True: [], False: []})
    """Exact results for hashed (True) and for plain reports."""
    whole: bool = False
    """Whether only whole numbers of dummies are tried."""

    def points(self, protocol: str) -> list[SearchPoint]:
        """
        Return a protocol's points with an approximate error within CLOSE_ENOUGH of the least.

        Sorted by dummies, then by seeds, then by error; may be empty.
        """
        target = self.target
        answers, known = np.array([[float(target.domain_size)]]), PROTOCOLS[protocol]
        if known.hashes:
            answers = fields(target.domain_size, target.most_seeds)[:, None]
        if not len(answers) or (known.noiseless and not target.may_be_plain):
            return []  # too few items to hash, or reports need local noise
        most = self._numbers_of_dummies(known)
        tightness = _interpolated(answers, self.known[known.hashes])
        blanket, dummies = self.solve(protocol, answers, most, tightness)
        errors = share_errors(target, answers, blanket, dummies, _collision(known, answers))
        if known.dummy_distributions and not (known.noiseless or self._published):
            errors[dummies < _MIN_DUMMIES] = math.inf  # without dummies, it is another protocol
        least = float(errors.min())
        if not math.isfinite(least):
            return []
        return sorted(
            SearchPoint(
                needed=math.ceil(dummies[row, column] - 1e-9),
                seeds=seeds_of(target.domain_size, int(answers[row, 0])) if known.hashes else 0,
                mse=float(errors[row, column]),
                protocol=protocol,
                answers=int(answers[row, 0]),
                dummies_per_user=float(most[column]),
            )
            for row, column in np.argwhere(errors <= CLOSE_ENOUGH * least).tolist()
        )

    def solve(
        self, protocol: str, answers: Vector, most: Vector, tightness: Vector | float
    ) -> tuple[Vector, Vector]:
        """
        Return the least blanket probability that meets the guarantee, and the dummies per user.

        If the cap on the local ε requires more noise than the guarantee does, fewer dummies are
        enough. Dummies are NaN if reports carry no noise and more than `most` dummies per user
        would be needed. `answers`, `most` and `tightness` (ln of a factor on μ) broadcast.
        """
        target, row = self.target, PROTOCOLS[protocol]
        others = target.honest - 1
        independence = 1 - _collision(row, answers) * (not self._published)
        scale = np.exp(2 * np.asarray(tightness)) * self._mu**2 / (2 * independence * answers)
        # The smaller root of (1 - γ)² = scale · (others·γ + D + 1), without cancellation.
        half = self._power + scale * others
        rest = 1 - scale * (target.honest * most + 1)
        root = np.sqrt(np.maximum(half**2 - 2 * self._power * rest, 0))
        blanket = np.where(rest > 0, 2 * rest / (half + root), 0.0)
        least_noise = blanket_of(answers, target.noise_cap)
        if target.may_be_plain and row.local_noise == "optional":
            least_noise = np.where(blanket > least_noise, least_noise, 0.0)
        if row.noiseless:
            blanket = np.zeros_like(blanket)
            needed = (1 / scale - 1) / target.honest
            return blanket, self._numbers(np.where(needed <= most, np.maximum(needed, 0.0), np.nan))
        one_round = min(target.central_epsilon / target.rounds, target.noise_cap)
        most_noise = blanket_of(answers, one_round)
        noisy = blanket > least_noise
        blanket = np.clip(blanket, least_noise, np.maximum(most_noise, least_noise))
        needed = ((1 - blanket) ** self._power / scale - 1 - others * blanket) / target.honest
        return blanket, self._numbers(np.where(noisy, most, np.clip(needed, 0.0, most)))

    def _numbers(self, dummies: Vector) -> Vector:
        return np.ceil(dummies) if self.whole else dummies

    @property
    def _mu(self) -> float:
        """The largest μ allowed for one round."""
        target = self.target
        if self._published:
            return target.central_epsilon / math.sqrt(7 * math.log(2 / target.delta))
        return gaussian_mu(target.central_epsilon, target.delta) / math.sqrt(target.rounds)

    @property
    def _published(self) -> bool:
        return self.target.accounting == "published"

    @property
    def _power(self) -> int:
        """The power of 1 - γ in μ²."""
        return 0 if self._published else 2

    def design(self, point: SearchPoint, tightness: float) -> Design | None:
        """Return the point's design with the least approximate noise, or None if none fits."""
        answers, most = np.array([float(point.answers)]), np.array([point.dummies_per_user])
        found = self.solve(point.protocol, answers, most, tightness)
        [gamma], [dummies] = (array.tolist() for array in found)
        if not math.isfinite(dummies):
            return None
        epsilon = math.inf
        if gamma > 0:
            epsilon = math.log1p(point.answers * (1 - gamma) / gamma)
            epsilon = min(_rounded(epsilon, up=False), self.target.noise_cap)
        return Design.of(
            self.name or point.protocol,
            self.target,
            buckets=point.answers if PROTOCOLS[point.protocol].hashes else 0,
            local_epsilon=epsilon,
            dummies_per_user=min(_rounded(dummies, up=True), point.dummies_per_user),
        )

    def _numbers_of_dummies(self, row: ProtocolRow) -> Vector:
        """Return numbers of dummies per user that caps, envelopes and the accountant allow."""
        empty, one = (envelope_bytes(_LARGEST_REPORT, number) for number in (0, 1))
        carried = (MAX_ENVELOPE_BYTES - empty) // (one - empty) - 1
        counted = MAX_COUNT / self.target.n_min
        messages = self.target.most_messages(hashed=row.hashes)
        most = min(messages - 1, carried, counted)
        if not row.dummy_distributions or self.target.trust == "none" or most < _MIN_DUMMIES:
            return np.zeros(1)
        if row.noiseless:
            return np.array([math.floor(most) if self.whole else most])
        if self.whole:
            return np.arange(0.0, 1 + math.floor(most))
        whole = np.arange(1.0, 1 + min(_WHOLE, math.floor(most)))
        steps = np.geomspace(_MIN_DUMMIES, most, _STEPS)
        inner = [_rounded(step, up=False) for step in steps[:-1].tolist()]
        return np.unique(np.concatenate([inner, whole, [most]]))


def _collision(row: ProtocolRow, answers: Vector) -> Vector:
    return 1 / answers if row.hashes else np.zeros_like(answers)


def _interpolated(answers: Vector, known: Sequence[Tightness]) -> Vector:
    """Interpolate log factors for numbers of answers, weighted by inverse squared log distance."""
    if not known:
        return np.zeros_like(answers)
    logs = np.log([float(result.answers) for result in known])
    weights = 1 / ((np.log(answers)[..., None] - logs) ** 2 + 1e-4)
    values = np.array([result.log_factor for result in known])
    mean: Vector = (weights * values).sum(axis=-1) / weights.sum(axis=-1)
    return mean


def _rounded(number: float, *, up: bool) -> float:
    """Round up or down to five significant digits, so that printed parameters are those checked."""
    if number <= 0:
        return 0.0
    scale = 10.0 ** (4 - math.floor(math.log10(number)))
    whole = math.ceil(number * scale - 1e-6) if up else math.floor(number * scale + 1e-6)
    return float(f"{whole / scale:.5g}")
