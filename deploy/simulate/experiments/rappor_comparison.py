"""What RAPPOR makes of strings whose people are known: settings side by side on one population."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Counts
from common.mechanisms.rappor.rappor import Rappor
from deploy.results.rappor.decoder import Decoding, benjamini_hochberg, bonferroni, decode

Found = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """RAPPOR's parameters by the letters of its paper [EPK14]."""

    k: int
    h: int
    m: int
    f: Fraction
    p: Fraction
    q: Fraction

    def mechanism(self) -> Rappor:
        """
        Build the mechanism of a Bloom filter.

        Raises:
            TaskError: A number is out of its range.
        """
        spec = Rappor.specify(
            bits=self.k, hashes=self.h, cohorts=self.m, f=self.f, p=self.p, q=self.q
        )
        return Rappor.of(spec, ())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Candidates, and how many people hold each; candidates that nobody holds are absent."""

    title: str
    candidates: tuple[str, ...]
    people: Counts
    """Shape (M,)."""

    @property
    def n_users(self) -> int:
        """All people; each holds a candidate."""
        return int(self.people.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """One setting: what was decoded of one report from each person."""

    letters: Letters
    local_epsilon: float
    """Of one report."""
    permanent_epsilon: float
    """Of any number of reports of one string."""
    population: Population
    decoding: Decoding
    level: float
    seconds: float
    """To decode."""

    @property
    def l1(self) -> float:
        """Sum over all candidates of how far the estimated share is off."""
        apart = self.decoding.counts - self.population.people
        return float(np.abs(apart).sum()) / self.population.n_users

    @property
    def rmse(self) -> float:
        """Root mean square, over all candidates, of how far the estimated count is off."""
        apart = self.decoding.counts - self.population.people
        return float(np.sqrt((apart**2).mean()))

    @property
    def n_held(self) -> int:
        """Candidates that anybody holds."""
        return int((self.population.people > 0).sum())

    def found(self, *, strictly: bool) -> tuple[int, int]:
        """
        Give how many strings were detected that people hold, and how many that nobody holds.

        Args:
            strictly: By Bonferroni; else by Benjamini and Hochberg.
        """
        detected = self.detected(strictly=strictly)
        held = self.population.people > 0
        return int((detected & held).sum()), int((detected & ~held).sum())

    def detected(self, *, strictly: bool) -> Found:
        """Say which candidates were detected, shape (M,)."""
        reject = bonferroni if strictly else benjamini_hochberg
        return reject(self.decoding.p_values, self.level)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RapporComparison:
    """Settings side by side."""

    population: Population
    seed: int
    lines: tuple[Line, ...]


def compare(
    population: Population, settings: Sequence[Letters], seed: int, *, level: float = 0.05
) -> RapporComparison:
    """
    Collect a report from everybody under each setting, and decode.

    Reports are not made one by one: their tally is drawn from its exact law, which takes no longer
    for millions of people.

    Args:
        population: Who holds what.
        settings: Each collected with a generator of its own.
        seed: Of all randomness.
        level: Of a detection, over all candidates.

    Raises:
        TaskError: A setting is out of range, or cannot tell two candidates apart.

    Cost: a second for some hundred candidates.
    """
    seeds = np.random.SeedSequence(seed).spawn(len(settings))
    lines = [
        _line(population, letters, np.random.default_rng(each), level)
        for letters, each in zip(settings, seeds, strict=True)
    ]
    return RapporComparison(population=population, seed=seed, lines=tuple(lines))


def _line(population: Population, letters: Letters, rng: np.random.Generator, level: float) -> Line:
    mechanism = letters.mechanism()
    held = np.nonzero(population.people)[0]
    texts = [population.candidates[place] for place in held]
    cells = mechanism.sample_cells(population.people[held], texts, rng)
    started = time.perf_counter()
    decoding = decode(mechanism, cells, population.candidates, level=level)
    return Line(
        letters=letters,
        local_epsilon=mechanism.local_epsilon,
        permanent_epsilon=mechanism.permanent_epsilon,
        population=population,
        decoding=decoding,
        level=level,
        seconds=time.perf_counter() - started,
    )
