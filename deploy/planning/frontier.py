"""
The best error that each kind of design could have, drawn in the Gaussian approximation.

With n_h honest users, D dummies of theirs and l answers of blanket probability γ, a release is
about as private as Gaussian privacy with μ² = 2(1-c)·l·(1-γ)²/(n_hγ + D), c = 1/l for hashing and
0 for GRR. Solved for γ it gives, for every l and number of dummies at once, the least noise that
keeps a promise. What it draws is searched, never stated: the exact accountant decides, and its
verdict comes back as a tightness, the logarithm of the factor by which μ may be larger (or must be
smaller) than the approximation has it.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from common.accounting.count_distributions import MAX_COUNT
from common.accounting.gaussian import gaussian_mu
from common.errors import TaskError
from common.mechanisms.base import Vector
from common.mechanisms.hashing.finite_field import MAX_SEEDS
from common.mechanisms.hashing.local_hashing import family_for
from common.mechanisms.support import bernoulli_variance
from common.task.task import MAX_ENVELOPE_BYTES, envelope_bytes
from deploy.planning.design import Design
from deploy.planning.requirements import Wishes

ProtocolName = Literal["sh", "murs", "mixdump", "puredump", "od-hp", "fe1"]
"""Rows of the table of protocols whose blanket is uniform reports: what is drawn here."""

HASHED: Final = frozenset({"murs", "od-hp", "fe1"})
WITHOUT_DUMMIES: Final = frozenset({"sh", "murs"})
NOISELESS: Final = frozenset({"puredump", "fe1"})
"""Dummies alone hide: as many as the promise takes."""

CLOSE_ENOUGH: Final = 1.003
"""Errors within this factor of the least are the same; the cheaper design is taken."""

_LEAST_DUMMIES: Final = 0.01
"""Fewer dummies a user than this are none."""
_STEPS: Final = 60
"""Numbers of dummies that are tried, log-spaced, beside the whole ones."""
_WHOLE: Final = 20
_LARGEST_REPORT: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the exact accountant said at one place: by how much the drawing was off there."""

    answers: int
    tightness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A protocol with l answers and at most so many dummies: all but the noise is decided."""

    protocol: ProtocolName
    answers: int
    dummies_per_user: float
    mse: float
    """As drawn."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The drawing for one operator's wishes."""

    wishes: Wishes

    @property
    def mu(self) -> float:
        """What Gaussian privacy one round may have."""
        wishes = self.wishes
        return gaussian_mu(wishes.central_epsilon, wishes.delta) / math.sqrt(wishes.rounds)

    @property
    def most_dummies(self) -> float:
        """The most dummies per user that caps, envelopes and the accountant take."""
        per_report = envelope_bytes(_LARGEST_REPORT, 1) - envelope_bytes(_LARGEST_REPORT, 0)
        carried = (MAX_ENVELOPE_BYTES - envelope_bytes(_LARGEST_REPORT, 0)) // per_report - 1
        counted = MAX_COUNT / self.wishes.n_min
        return max(0.0, min(self.wishes.messages_cap - 1, carried, counted))

    def protocols(self) -> tuple[ProtocolName, ...]:
        """The protocols that the wishes leave room for."""
        wishes = self.wishes
        found: list[ProtocolName] = ["sh"]
        dummies = wishes.trust != "none" and self.most_dummies >= _LEAST_DUMMIES
        if dummies:
            found.append("mixdump")
        if dummies and wishes.may_be_plain:
            found.append("puredump")
        if len(fields(wishes.domain_size, wishes.most_seeds)):
            found.append("murs")
            if dummies:
                found.append("od-hp")
            if dummies and wishes.may_be_plain:
                found.append("fe1")
        return tuple(found)

    def places(self, protocol: ProtocolName, verdicts: Sequence[Verdict] = ()) -> list[Place]:
        """
        Give the designs of a protocol whose drawn error is the least, the cheapest first.

        Returns:
            Those within CLOSE_ENOUGH of the least, ordered by bytes per user, then by seeds to be
            decoded, then by error; nothing if no design keeps the promise.
        """
        answers = self._answers(protocol)[:, None]
        if not len(answers):
            return []  # too few items to hash
        most = self._numbers_of_dummies(protocol)
        blanket, dummies = self.solve(protocol, answers, most, _tightness(answers, verdicts))
        errors = self._errors(protocol, answers, blanket, dummies)
        if protocol in {"mixdump", "od-hp"}:
            errors[dummies < _LEAST_DUMMIES] = math.inf  # the protocol without dummies is there
        least = float(errors.min())
        if not math.isfinite(least):
            return []
        rows, columns = np.nonzero(errors <= CLOSE_ENOUGH * least)
        found = [
            Place(
                protocol=protocol,
                answers=int(answers[row, 0]),
                dummies_per_user=float(most[column]),
                mse=float(errors[row, column]),
            )
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        ]
        used = dict(zip(found, np.ceil(dummies[rows, columns] - 1e-9).tolist(), strict=True))
        seeds = functools.partial(_seeds, self.wishes.domain_size, protocol)
        found.sort(key=lambda place: (used[place], seeds(place.answers), place.mse))
        return found

    def solve(
        self, protocol: ProtocolName, answers: Vector, most: Vector, tightness: Vector | float
    ) -> tuple[Vector, Vector]:
        """
        Give the least blanket probability that keeps the promise, and the dummies it needs.

        Where reports may be as sharp as the cap allows, dummies are dropped until the promise is
        just kept; not a number where it cannot be kept.

        Args:
            protocol: Decides on hashing and on local noise.
            answers: l, any shape.
            most: Dummies per user to begin with, fitting `answers`.
            tightness: Logarithm of the factor on μ, fitting `answers`.
        """
        wishes = self.wishes
        others = wishes.honest - 1
        independence = 1 - 1 / answers if protocol in HASHED else np.ones_like(answers)
        scale = np.exp(2 * np.asarray(tightness)) * self.mu**2 / (2 * independence * answers)
        # (1 - γ)² = scale · (others·γ + D + 1), the smaller root, in the form that keeps digits.
        half = 2 + scale * others
        rest = 1 - scale * (wishes.honest * most + 1)
        root = np.sqrt(np.maximum(half**2 - 4 * rest, 0))
        blanket = np.where(rest > 0, 2 * rest / (half + root), 0.0)
        sharpest = _blanket(answers, wishes.noise_cap)
        if wishes.may_be_plain and protocol == "od-hp":
            sharpest = np.where(blanket > sharpest, sharpest, 0.0)
        if protocol in NOISELESS:
            blanket = sharpest = np.zeros_like(blanket)
        bluntest = _blanket(answers, min(wishes.central_epsilon / wishes.rounds, wishes.noise_cap))
        noisy = blanket > sharpest
        if protocol not in NOISELESS:
            blanket = np.clip(blanket, sharpest, np.maximum(bluntest, sharpest))
        needed = ((1 - blanket) ** 2 / scale - 1 - others * blanket) / wishes.honest
        dummies = np.where(noisy, most, np.clip(needed, 0.0, most))
        if protocol in NOISELESS:
            dummies = np.where(needed <= most, np.maximum(needed, 0.0), np.nan)
        return blanket, dummies

    def design(self, place: Place, tightness: float) -> Design | None:
        """Give the sharpest design at a place, as drawn there; None if there is none."""
        blanket, dummies = self.solve(
            place.protocol,
            np.array([float(place.answers)]),
            np.array([place.dummies_per_user]),
            tightness,
        )
        if not math.isfinite(float(dummies[0])):
            return None
        return Design(
            protocol=place.protocol,
            answers=place.answers,
            hashed=place.protocol in HASHED,
            local_epsilon=self._local_epsilon(place.answers, float(blanket[0])),
            dummies_per_user=min(_rounded(float(dummies[0]), up=True), place.dummies_per_user),
        )

    def _local_epsilon(self, answers: int, blanket: float) -> float:
        if blanket <= 0:
            return math.inf
        epsilon = math.log1p(answers * (1 - blanket) / blanket)
        return min(_rounded(epsilon, up=False), self.wishes.noise_cap)

    def _answers(self, protocol: ProtocolName) -> Vector:
        if protocol in HASHED:
            return fields(self.wishes.domain_size, self.wishes.most_seeds)
        return np.array([float(self.wishes.domain_size)])

    def _numbers_of_dummies(self, protocol: ProtocolName) -> Vector:
        most = self.most_dummies
        if protocol in WITHOUT_DUMMIES or most < _LEAST_DUMMIES:
            return np.zeros(1)
        if protocol in NOISELESS:
            return np.array([most])
        whole = np.arange(1.0, 1 + min(_WHOLE, math.floor(most)))
        steps = np.geomspace(_LEAST_DUMMIES, most, _STEPS)
        inner = [_rounded(step, up=False) for step in steps[:-1].tolist()]
        return np.unique(np.concatenate([inner, whole, [most]]))

    def _errors(
        self, protocol: ProtocolName, answers: Vector, blanket: Vector, dummies: Vector
    ) -> Vector:
        """Mean squared error of a share: the variance is linear in the shares, which add to 1."""
        uniform, other = 1 / answers, blanket / answers
        errors = bernoulli_variance(
            1 / self.wishes.domain_size,
            n_real=self.wishes.n_users,
            n_dummies=self.wishes.n_users * dummies,
            p=1 - blanket + other,
            q=uniform if protocol in HASHED else other,
            q_dummy=uniform,
        )
        return np.where(np.isfinite(errors), errors, math.inf)


@functools.lru_cache(maxsize=16)
def fields(domain_size: int, most_seeds: int = MAX_SEEDS) -> Vector:
    """Give the primes below domain_size of whose hash family so many seeds are not exceeded."""
    limit = min(domain_size, math.isqrt(MAX_SEEDS) + 1)
    return np.array(
        [float(g) for g in range(2, limit) if 0 < _seeds(domain_size, "od-hp", g) <= most_seeds],
        dtype=np.float64,
    )


@functools.lru_cache(maxsize=1 << 16)
def _seeds(domain_size: int, protocol: ProtocolName, answers: int) -> int:
    """Seeds of the least field; 0 for a protocol without, and if there is no such field."""
    if protocol not in HASHED:
        return 0
    try:
        return family_for(domain_size, answers).seeds
    except TaskError:
        return 0


def _tightness(answers: Vector, verdicts: Sequence[Verdict]) -> Vector:
    """Guess the tightness at other numbers of answers: the nearest verdicts count most."""
    if not verdicts:
        return np.zeros_like(answers)
    known = np.log([float(verdict.answers) for verdict in verdicts])
    weights = 1 / ((np.log(answers)[..., None] - known) ** 2 + 1e-4)
    values = np.array([verdict.tightness for verdict in verdicts])
    mean: Vector = (weights * values).sum(axis=-1) / weights.sum(axis=-1)
    return mean


def _blanket(answers: Vector, local_epsilon: float) -> Vector:
    """γ = l / (e^ε + l - 1)."""
    inverse = math.exp(-local_epsilon)
    blanket: Vector = answers * inverse / (1 + (answers - 1) * inverse)
    return blanket


def _rounded(number: float, *, up: bool) -> float:
    """Keep five significant digits, so that what is written down is what was checked."""
    if number <= 0:
        return 0.0
    place = 10.0 ** (4 - math.floor(math.log10(number)))
    whole = math.ceil(number * place - 1e-6) if up else math.floor(number * place + 1e-6)
    return float(f"{whole / place:.5g}")
