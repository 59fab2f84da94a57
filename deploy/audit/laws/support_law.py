"""
How likely a report supports its own value and another, from ε alone.

Written from the papers' formulas, apart from the mechanisms' integers, so that a randomizer and
its weights cannot be wrong together unnoticed.
"""

import math
from dataclasses import dataclass

from common.task.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportLaw:
    """Chances that a report supports a value."""

    own: float
    other: float
    dummy: float
    independent: bool = False
    """Whether two values are supported independently; otherwise never both, if not far_only."""
    far_only: bool = False
    """Whether `other` is the chance of the last item under the first, and the other way round."""


def support_law(task: Task) -> SupportLaw:
    """Give the chances: GRR [KBR16], unary and hashing [WBLJ17], square wave [LWLWLS20]."""
    power = math.exp(task.local_epsilon)
    name, size, buckets = task.mechanism.name, task.domain_size, task.item_mechanism.buckets
    if name in {"grr", "warner"}:
        return _response(power, size, other=None)
    if name in {"local-hashing", "string-hashing"}:
        return _response(power, buckets, other=1 / buckets)
    if name == "symmetric-unary":
        root = math.sqrt(power)
        return SupportLaw(
            own=root / (root + 1), other=1 / (root + 1), dummy=1 / (root + 1), independent=True
        )
    if name == "optimized-unary":
        return SupportLaw(own=0.5, other=1 / (power + 1), dummy=1 / (power + 1), independent=True)
    places = max(size, buckets)
    return _square_wave(power, size, places)


def _response(power: float, answers: int, *, other: float | None) -> SupportLaw:
    own = 1.0 if math.isinf(power) else power / (power + answers - 1)
    wrong = (1 - own) / (answers - 1) if math.isinf(power) else 1 / (power + answers - 1)
    return SupportLaw(
        own=own,
        other=wrong if other is None else other,
        dummy=1 / answers,
        independent=other is not None,
    )


def _square_wave(power: float, size: int, places: int) -> SupportLaw:
    """Of `places` places, the `width` around the value are e^ε times as likely as the others."""
    width = places - size + 1
    total = width * power + size - 1
    shared = max(0, 2 * width - places)
    far = (shared * power + (width - shared)) / total
    return SupportLaw(own=width * power / total, other=far, dummy=width / places, far_only=True)
