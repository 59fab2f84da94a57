"""
Approximate the best error of each kind of design by Gaussian privacy. Pure.

With n_h honest users, D dummies of theirs and l answers of blanket probability γ, a release is
about as private as Gaussian privacy with μ² = 2(1-c)·l·(1-γ)²/(n_hγ + D), c = 1/l for hashing and
0 for GRR. Solved for γ it gives the least noise that keeps a guarantee. The approximation is
searched, never stated: the exact accountant's answer comes back as a tightness, the logarithm of
the factor by which μ may be larger (or must be smaller) than approximated.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from common.accounting.count_distributions import MAX_COUNT
from common.accounting.epsilon_search import gaussian_mu
from common.errors import TaskError
from common.mechanisms.base import Vector
from common.mechanisms.hashing.finite_field import MAX_SEEDS
from common.mechanisms.hashing.local_hashing import family_for
from common.task.task import MAX_ENVELOPE_BYTES, envelope_bytes
from deploy.planning.design import Design, blanket_probability, share_errors
from deploy.planning.requirements import Requirements

HASHED: Final = frozenset({"murs", "od-hp", "fe1"})
WITHOUT_DUMMIES: Final = frozenset({"sh", "murs"})
NOISELESS: Final = frozenset({"puredump", "fe1"})
"""Dummies alone hide the values."""
SEARCHED: Final = ("sh", "mixdump", "puredump", "murs", "od-hp", "fe1")
"""Protocols whose blanket is uniform reports."""

CLOSE_ENOUGH: Final = 1.003
"""Errors within this factor of the least count as equal; the cheapest design is taken."""

_MIN_DUMMIES: Final = 0.01
"""Fewer dummies a user than this count as none."""
_STEPS: Final = 60
"""Numbers of dummies that are tried, log-spaced, beside the whole ones."""
_WHOLE: Final = 20
_LARGEST_REPORT: Final = 12


class Tightness(NamedTuple):
    """How far the approximation was from the exact accountant, at one number of answers."""

    answers: int
    log_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPoint:
    """A protocol with l answers and at most so many dummies: all but the noise is fixed."""

    protocol: str
    answers: int
    dummies_per_user: float
    mse: float
    """In the approximation."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The approximation for one set of requirements, corrected by what the accountant found."""

    wanted: Requirements
    known: Mapping[bool, list[Tightness]] = field(default_factory=lambda: {True: [], False: []})
    """By whether reports are hashed."""

    @property
    def mu(self) -> float:
        """The Gaussian privacy that one round may have."""
        wanted = self.wanted
        return gaussian_mu(wanted.central_epsilon, wanted.delta) / math.sqrt(wanted.rounds)

    @property
    def most_dummies(self) -> float:
        """The most dummies per user that caps, envelopes and the accountant take."""
        if self.wanted.trust == "none":
            return 0.0
        per_report = envelope_bytes(_LARGEST_REPORT, 1) - envelope_bytes(_LARGEST_REPORT, 0)
        carried = (MAX_ENVELOPE_BYTES - envelope_bytes(_LARGEST_REPORT, 0)) // per_report - 1
        counted = MAX_COUNT / self.wanted.n_min
        return max(0.0, min(self.wanted.messages_cap - 1, carried, counted))

    def points(self, protocol: str) -> list[SearchPoint]:
        """
        Return the designs of a protocol within CLOSE_ENOUGH of the least approximate error.

        The cheapest first: by bytes per user, then by seeds to decode, then by error.
        """
        wanted = self.wanted
        answers = np.array([[float(wanted.domain_size)]])
        if protocol in HASHED:
            answers = fields(wanted.domain_size, wanted.most_seeds)[:, None]
        if not len(answers) or (protocol in NOISELESS and not wanted.may_be_plain):
            return []  # too few items to hash, or a cap on the local ε
        most = self._numbers_of_dummies(protocol)
        tightness = _interpolated(answers, self.known[protocol in HASHED])
        blanket, dummies = self.solve(protocol, answers, most, tightness)
        errors = share_errors(wanted, answers, blanket, dummies, hashed=protocol in HASHED)
        if protocol in {"mixdump", "od-hp"}:
            errors[dummies < _MIN_DUMMIES] = math.inf  # this is the protocol without dummies
        least = float(errors.min())
        if not math.isfinite(least):
            return []
        found = []
        for row, column in np.argwhere(errors <= CLOSE_ENOUGH * least).tolist():
            point = SearchPoint(
                protocol=protocol,
                answers=int(answers[row, 0]),
                dummies_per_user=float(most[column]),
                mse=float(errors[row, column]),
            )
            seeds = _seeds(wanted.domain_size, point.answers) if protocol in HASHED else 0
            found.append((math.ceil(dummies[row, column] - 1e-9), seeds, point.mse, point))
        return [point for *_, point in sorted(found, key=lambda each: each[:3])]

    def solve(
        self, protocol: str, answers: Vector, most: Vector, tightness: Vector | float
    ) -> tuple[Vector, Vector]:
        """
        Return the least blanket probability that keeps the guarantee, and the dummies it needs.

        Where reports are as sharp as the cap allows, dummies are dropped until the guarantee is
        just kept; not a number where it cannot be kept. l (`answers`), the most dummies per user
        and the logarithms of the factor on μ (`tightness`) broadcast.
        """
        wanted = self.wanted
        others = wanted.honest - 1
        independence = 1 - 1 / answers if protocol in HASHED else np.ones_like(answers)
        scale = np.exp(2 * np.asarray(tightness)) * self.mu**2 / (2 * independence * answers)
        # (1 - γ)² = scale · (others·γ + D + 1), the smaller root, in the form that keeps digits.
        half = 2 + scale * others
        rest = 1 - scale * (wanted.honest * most + 1)
        root = np.sqrt(np.maximum(half**2 - 4 * rest, 0))
        blanket = np.where(rest > 0, 2 * rest / (half + root), 0.0)
        sharpest = blanket_probability(answers, wanted.noise_cap)
        if wanted.may_be_plain and protocol == "od-hp":
            sharpest = np.where(blanket > sharpest, sharpest, 0.0)
        if protocol in NOISELESS:
            blanket = np.zeros_like(blanket)
            needed = (1 / scale - 1) / wanted.honest
            return blanket, np.where(needed <= most, np.maximum(needed, 0.0), np.nan)
        one_round = min(wanted.central_epsilon / wanted.rounds, wanted.noise_cap)
        bluntest = blanket_probability(answers, one_round)
        noisy = blanket > sharpest
        blanket = np.clip(blanket, sharpest, np.maximum(bluntest, sharpest))
        needed = ((1 - blanket) ** 2 / scale - 1 - others * blanket) / wanted.honest
        return blanket, np.where(noisy, most, np.clip(needed, 0.0, most))

    def design(self, point: SearchPoint, tightness: float) -> Design | None:
        """Return the sharpest design at a point, as approximated there; None if there is none."""
        answers, most = np.array([float(point.answers)]), np.array([point.dummies_per_user])
        [gamma], [dummies] = (
            array.tolist() for array in self.solve(point.protocol, answers, most, tightness)
        )
        if not math.isfinite(dummies):
            return None
        epsilon = math.inf
        if gamma > 0:
            epsilon = math.log1p(point.answers * (1 - gamma) / gamma)
            epsilon = min(_rounded(epsilon, up=False), self.wanted.noise_cap)
        return Design(
            protocol=point.protocol,
            wanted=self.wanted,
            buckets=point.answers if point.protocol in HASHED else 0,
            local_epsilon=epsilon,
            dummies_per_user=min(_rounded(dummies, up=True), point.dummies_per_user),
        )

    def _numbers_of_dummies(self, protocol: str) -> Vector:
        most = self.most_dummies
        if protocol in WITHOUT_DUMMIES or most < _MIN_DUMMIES:
            return np.zeros(1)
        if protocol in NOISELESS:
            return np.array([most])
        whole = np.arange(1.0, 1 + min(_WHOLE, math.floor(most)))
        steps = np.geomspace(_MIN_DUMMIES, most, _STEPS)
        inner = [_rounded(step, up=False) for step in steps[:-1].tolist()]
        return np.unique(np.concatenate([inner, whole, [most]]))


@functools.lru_cache(maxsize=16)
def fields(domain_size: int, most_seeds: int = MAX_SEEDS) -> Vector:
    """Return the primes below domain_size whose hash families have at most so many seeds."""
    limit = min(domain_size, math.isqrt(MAX_SEEDS) + 1)
    return np.array(
        [float(g) for g in range(2, limit) if 0 < _seeds(domain_size, g) <= most_seeds],
        dtype=np.float64,
    )


@functools.lru_cache(maxsize=1 << 16)
def _seeds(domain_size: int, answers: int) -> int:
    """Return the seeds of the least field; 0 if there is no such field."""
    try:
        return family_for(domain_size, answers).seeds
    except TaskError:
        return 0


def _interpolated(answers: Vector, known: Sequence[Tightness]) -> Vector:
    """Guess the tightness at other numbers of answers: the nearest ones weigh most."""
    if not known:
        return np.zeros_like(answers)
    places = np.log([float(each.answers) for each in known])
    weights = 1 / ((np.log(answers)[..., None] - places) ** 2 + 1e-4)
    values = np.array([each.log_factor for each in known])
    mean: Vector = (weights * values).sum(axis=-1) / weights.sum(axis=-1)
    return mean


def _rounded(number: float, *, up: bool) -> float:
    """Keep five significant digits, so that what is written down is what was checked."""
    if number <= 0:
        return 0.0
    place = 10.0 ** (4 - math.floor(math.log10(number)))
    whole = math.ceil(number * place - 1e-6) if up else math.floor(number * place + 1e-6)
    return float(f"{whole / place:.5g}")
