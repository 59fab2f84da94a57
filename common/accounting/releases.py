"""The privacy of one released round: upper bounds on δ(ε) for replace-one neighbours."""

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from scipy import special

from shuffledp.common.accounting.amplification import DeltaCurve, delta_upper, epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.epsilon_search import gaussian_epsilon, least_epsilon
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.messages.guarantee import rounded_up, sum_upper


class Release(Protocol):
    """The privacy loss of one released round; hashable, for caches."""

    def __hash__(self) -> int:
        """Hash the fields, as dataclasses do."""
        return super().__hash__()

    @property
    def local_epsilon(self) -> float:
        """Local ε, which holds against every coalition; may be infinite."""

    def delta(self, epsilon: float) -> float:
        """
        Return an upper bound on δ at ε, 0 from the local ε on. Cost: tenths of a second.

        Raises AccountingError if epsilon is negative or not a number.
        """
        if not epsilon >= 0:
            raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
        return 0.0 if epsilon >= self.local_epsilon else self._delta(epsilon)

    @abstractmethod
    def _delta(self, epsilon: float) -> float:
        """Return the bound below the local ε."""

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on ε at δ, possibly infinite; by default, to a relative 1e-5."""
        # The ε of the Gaussian privacy with the same δ(0) = 2·Φ(μ/2) - 1 is close.
        mu = 2 * float(special.ndtri((1 + self.delta(0.0)) / 2))
        guess = gaussian_epsilon(mu, delta)
        return least_epsilon(self.delta, delta=delta, local_epsilon=self.local_epsilon, guess=guess)

    def curve(self, epsilons: Sequence[float]) -> Callable[[float], float]:
        """
        Return an upper bound on δ as a function of ε: the curve of one pair of distributions.

        It is fast to evaluate, and accurate at `epsilons`; by default it is `delta` itself.
        """
        return self.delta


LAYOUT_TOLERANCE: Final = 3e-2
"""Relative error of δ at the ε for which a curve is laid out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplifiedRelease(Release):
    """One round of a match-count mechanism, amplified by an anonymity set."""

    reduction: MatchCountReduction
    anonymity_set: AnonymitySet

    @property
    def local_epsilon(self) -> float:
        return self.reduction.local_epsilon

    def _delta(self, epsilon: float) -> float:
        return delta_upper(self.reduction, self.anonymity_set, epsilon)

    def epsilon(self, delta: float) -> float:
        return epsilon_upper(self.reduction, self.anonymity_set, delta)

    def curve(self, epsilons: Sequence[float]) -> Callable[[float], float]:
        return DeltaCurve(self.reduction, self.anonymity_set, epsilons, LAYOUT_TOLERANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRelease(Release):
    """A release protected by local noise alone: the δ(ε) of randomized response [KOV15]."""

    local_epsilon: float

    def _delta(self, epsilon: float) -> float:
        """Return (e^ε0 - e^ε)_+ / (e^ε0 + 1), the largest δ of any ε0-private pair [KOV15]."""
        rest = -math.expm1(epsilon - self.local_epsilon)
        return rest / (1 + math.exp(-self.local_epsilon))

    def epsilon(self, delta: float) -> float:  # pure ε holds at every δ
        return self.local_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakestRelease(Release):
    """One round that is protected like one of several releases, nobody knows which."""

    releases: tuple[Release, ...]
    local_epsilon: float = math.inf

    def _delta(self, epsilon: float) -> float:
        """Return the largest δ of any: a maximum of convex curves is the curve of one pair too."""
        return max(each.delta(epsilon) for each in self.releases)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermanentRelease(LocalRelease):
    """
    A release of reports that share permanent noise with other rounds: pure ε only.

    All figures assume that a person's text stays the same. Then all reports of a scope follow from
    one permanent response, and cost together at most its ε∞, and at most the sum of their ε
    (docs/theory/accounting.md#lasting-questions).
    """

    scope: bytes = b""
    """`Task.permanent_scope`: the rounds that share noise."""
    permanent_epsilon: float = math.inf
    """ε∞, the local ε of any number of reports on one text."""

    def _delta(self, epsilon: float) -> float:
        """Return (1 - e^(ε-ε0))_+, the largest δ of any pair with a loss of at most ε0."""
        return -math.expm1(epsilon - self.local_epsilon)


def lasting_epsilon(releases: Iterable[Release]) -> float:
    """
    Return an upper bound on the local ε of those releases that share permanent noise.

    A scope costs the sum of its ε or, if less, ε∞. Scopes have independent noise, so they add up.
    """
    return sum_upper(min(total, most) for total, most, _ in _scopes(releases))


def lasting_basis(releases: Iterable[Release]) -> str:
    """State which of the two each scope costs, and why; empty if no release shares noise."""
    texts = []
    for total, most, n_answers in _scopes(releases):
        summed, together = rounded_up(total), rounded_up(most)
        why = f"{together}, if each person's text stays the same; their sum is {summed}"
        if math.isinf(most):
            why = f"{summed}, their sum, since the text has changed: that may be visible"
        elif total <= most:
            why = f"{summed}, their sum, below the {together} of any number of the same answers"
        texts.append(f"Answers to a lasting question: {n_answers:,}, which cost epsilon {why}.")
    return " ".join(texts)


def _scopes(releases: Iterable[Release]) -> Iterator[tuple[float, float, int]]:
    """Yield the sum of each scope's ε, its ε∞, and its number of releases."""
    scopes = defaultdict[bytes, list[PermanentRelease]](list)
    for release in releases:
        if isinstance(release, PermanentRelease):
            scopes[release.scope].append(release)
    for each in scopes.values():
        total = sum_upper(release.local_epsilon for release in each)
        yield total, each[0].permanent_epsilon, len(each)
