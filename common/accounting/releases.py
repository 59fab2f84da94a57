"""
One released round, as accounting sees it: a curve δ(ε), certified upward, with a cheap end.

Five kinds: among a crowd of reports and uniform dummies (formula 1), among clones, where no more
is known of a randomizer than its local ε, with noise on each item's count (`item_noise`), and
without anybody's help, with noise of its own or with noise that other rounds share. Replace-one
neighbours.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.accounting.amplification import DeltaCurve, delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.clones import CloneReduction
from common.mechanisms.reduction import MatchCountReduction


class Release(Hashable, Protocol):
    """What one released round gives away; hashable, so that what was worked out is remembered."""

    @property
    def local_epsilon(self) -> float:
        """What it gives away at most, whoever colludes; may be infinite."""

    def delta(self, epsilon: float) -> float:
        """Bound δ at ε from above. Cost: tenths of a second."""

    def epsilon(self, delta: float) -> float:
        """Bound ε at δ from above; infinite if nothing is certified. Cost: tenths of a second."""

    def curve(self, epsilons: Sequence[float], tolerance: float) -> Callable[[float], float]:
        """
        Give δ(ε) for many evaluations, an upper bound everywhere.

        Args:
            epsilons: Where it must be within `tolerance` of the best bound.
            tolerance: Relative.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplifiedRelease:
    """A match-count mechanism, and the crowd in which its users hid."""

    reduction: MatchCountReduction
    crowd: AnonymitySet

    @property
    def local_epsilon(self) -> float:
        """That of one report."""
        return self.reduction.local_epsilon

    def delta(self, epsilon: float) -> float:
        """Bound δ by formula 1."""
        return delta_upper(self.reduction, self.crowd, epsilon)

    def epsilon(self, delta: float) -> float:
        """Bound ε by formula 1."""
        return epsilon_upper(self.reduction, self.crowd, delta)

    def curve(self, epsilons: Sequence[float], tolerance: float) -> Callable[[float], float]:
        """Lay formula 1 out once for many ε."""
        return DeltaCurve(self.reduction, self.crowd, tuple(epsilons), tolerance=tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRelease:
    """Any randomizer with a local ε, and the crowd in which its users hid; dummies do not count."""

    local_epsilon: float
    """Finite."""
    crowd: AnonymitySet

    @property
    def _clones(self) -> CloneReduction:
        odds = math.exp(self.local_epsilon)
        return CloneReduction.of_2021_with_a_coin(odds, odds)

    def delta(self, epsilon: float) -> float:
        """Bound δ by clones with a coin."""
        return 0.0 if epsilon >= self.local_epsilon else self._clones.delta(self.crowd, epsilon)

    def epsilon(self, delta: float) -> float:
        """Bound ε by clones with a coin."""
        return self._clones.epsilon(self.crowd, delta, self.local_epsilon)

    def curve(
        self,
        epsilons: Sequence[float],  # noqa: ARG002  # bins do not depend on them
        tolerance: float,  # noqa: ARG002
    ) -> Callable[[float], float]:
        """Lay the bins out once for many ε."""
        return self._clones.curve(self.crowd)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingRelease:
    """
    Reports whose noise is shared with those of other rounds: pure ε, and no more than that.

    `composition` adds the ε of several rounds up. That is a bound although they share noise: of a
    bit whose instantaneous answers together have odds e^x, permanent noise leaves the odds e^g(x)
    with g(x) = 2·atanh((1-f)·tanh(x/2)), which is concave and 0 at 0: g(x+y) ≤ g(x) + g(y).
    """

    local_epsilon: float

    def delta(self, epsilon: float) -> float:
        """δ = 1 - e^(ε-ε0): no pair of laws with a loss of at most ε0 has more."""
        return -math.expm1(min(0.0, epsilon - self.local_epsilon))

    def epsilon(self, delta: float) -> float:  # noqa: ARG002  # pure: it helps nothing
        """Give the local ε."""
        return self.local_epsilon

    def curve(
        self,
        epsilons: Sequence[float],  # noqa: ARG002  # exact everywhere
        tolerance: float,  # noqa: ARG002
    ) -> Callable[[float], float]:
        """Give `delta` itself."""
        return self.delta


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRelease:
    """Reports that rely on nobody but their own device: pure ε, and randomized response's curve."""

    local_epsilon: float

    def delta(self, epsilon: float) -> float:
        """δ = (e^ε0 - e^ε) / (e^ε0 + 1): no ε0-private pair of laws has more [KOV15]."""
        if epsilon >= self.local_epsilon:
            return 0.0
        rest = -math.expm1(epsilon - self.local_epsilon)
        return rest / (1 + math.exp(-self.local_epsilon))

    def epsilon(self, delta: float) -> float:  # noqa: ARG002  # pure: it helps nothing
        """Give the local ε."""
        return self.local_epsilon

    def curve(
        self,
        epsilons: Sequence[float],  # noqa: ARG002  # exact everywhere
        tolerance: float,  # noqa: ARG002
    ) -> Callable[[float], float]:
        """Give `delta` itself."""
        return self.delta
