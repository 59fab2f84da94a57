"""
The probabilities of RAPPOR's reports and their local ε, computed from integers [EPK14].

With f, p and q as in `rappor.py`, a report sets a bit with probability p* if the text leaves the
bit unset, and q* if the text sets it:

    p* = (1-f)·p + f·(p+q)/2,    q* = (1-f)·q + f·(p+q)/2.
"""

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Final

from common.errors import TaskError
from common.mechanisms.arguments import CheckedArguments
from common.mechanisms.reduction import MatchCountReduction, PureReduction, Reduction
from common.mechanisms.weights import epsilon_of_odds
from common.task.specs import INSTANT_SUM, PERMANENT_SUM, RapporSpec

Probability = Fraction | Decimal | float

_TOTAL: Final = 2 * PERMANENT_SUM * INSTANT_SUM
"""Denominator of p* and q*: 256 for the permanent bit, times 65536 for the report's."""


def rounded_weights(f: Probability, p: Probability, q: Probability) -> tuple[int, int, int]:
    """
    Round f up to 128ths, p up and q down to 65536ths, and return these weights.

    Rounding only adds noise, so no ε exceeds that of the given probabilities. Raises TaskError if a
    number is not in 0 .. 1, f rounds to 1, or p does not stay below q.
    """
    permanent = math.ceil(_exact("f", f) * PERMANENT_SUM)
    unset = math.ceil(_exact("p", p) * INSTANT_SUM)
    shown = math.floor(_exact("q", q) * INSTANT_SUM)
    if permanent == PERMANENT_SUM:
        raise TaskError(f"f is {f}; rounded up to {PERMANENT_SUM}ths it must be below 1")
    if unset >= shown:
        raise TaskError(f"p is {p} and q {q}; rounded to {INSTANT_SUM}ths p must be below q")
    return permanent, unset, shown


class RapporProbabilities(CheckedArguments):
    """Base class of `Rappor`: the probabilities of a task's integer weights, and their ε."""

    spec: RapporSpec

    @cached_property
    def _odds(self) -> tuple[int, int]:
        """p* and q* times _TOTAL."""
        unset, shown = self.spec.unset_weight, self.spec.set_weight
        other = self.spec.permanent_weight
        same = 2 * PERMANENT_SUM - other
        return same * unset + other * shown, same * shown + other * unset

    @property
    def unset_probability(self) -> float:
        """Probability p* that a report sets a bit that the text leaves unset."""
        return self._odds[0] / _TOTAL

    @property
    def set_probability(self) -> float:
        """Probability q* that a report sets a bit that the text sets."""
        return self._odds[1] / _TOTAL

    @cached_property
    def local_epsilon(self) -> float:
        """
        Local ε of ONE report: h·ln(q*(1-p*) / (p*(1-q*))), rounded up [EPK14].

        In the least private pair, two texts set 2h different bits. Texts that share bits, or whose
        hashes coincide, are more private. The cohort does not depend on the text.
        """
        unset, shown = self._odds
        likelier, rarer = shown * (_TOTAL - unset), unset * (_TOTAL - shown)
        return epsilon_of_odds(likelier, rarer, self.spec.hashes)

    @cached_property
    def permanent_epsilon(self) -> float:
        """
        Local ε of any number of reports on ONE text: 2h·ln((1-f/2) / (f/2)), rounded up [EPK14].

        Infinite if f is 0. If a user's text changes, each text has its own ε; the bound fails if
        one text can be inferred from another.
        """
        weight = self.spec.permanent_weight
        return epsilon_of_odds(2 * PERMANENT_SUM - weight, weight, 2 * self.spec.hashes)

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Check that one report is local_epsilon-private. Run by the user agent."""
        return local_epsilon >= self.local_epsilon  # which is rounded up from 60 digits

    @property
    def reduction(self) -> Reduction:
        """
        A match count for one hash, in any number of cohorts, else the local ε alone.

        Let U draw a uniform cohort and set every bit with probability p*. A report supports a text
        if the text's bit in the report's cohort is set; U supports any text with probability p*.
        Relative to U a report has density q*/p* if it supports its own text, and γ = (1-q*)/(1-p*)
        otherwise: it is a draw from U with probability γ, else one from U given that it supports
        its text, with l = 1/p*. Two texts that share their bit in a share s of the cohorts collide
        with probability s + (1-s)·p* ≥ 1/l; fewer collisions are less private, so 1/l bounds every
        pair.

        Attacks cover it only if there are three texts, and no two of them ever share a bit.
        """
        if self.spec.hashes > 1:
            return PureReduction(local_epsilon=self.local_epsilon)
        unset, shown = self._odds
        rest = _TOTAL - unset
        reduction = MatchCountReduction.of_support_sets(
            answers=_TOTAL / unset,
            local_epsilon=self.local_epsilon,
            blanket=(_TOTAL - shown) / rest,
            signal=(shown - unset) / rest,
            independent=True,
        )
        third = self.spec.encoding == "labels" and self.spec.bits > 2  # noqa: PLR2004  # third text
        return reduction if third else dataclasses.replace(reduction, third_value="none")


def _exact(name: str, probability: Probability) -> Fraction:
    """Return a probability as a fraction; raise TaskError unless it is in 0 .. 1."""
    try:
        exact = Fraction(probability)
    except (ValueError, OverflowError) as error:
        raise TaskError(f"{name} must be a number") from error
    if not 0 <= exact <= 1:
        raise TaskError(f"{name} is {probability}; it must lie between 0 and 1")
    return exact
