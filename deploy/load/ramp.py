"""How much holds: rates that were tried, and the verdict. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ACHIEVED_AT_LEAST: Final = 0.95
"""Of the offered rate: what is less is a queue that grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rate, and what came of it."""

    offered: float
    """Users a second."""
    achieved: float
    """Users answered, a second, from the first arrival to the last answer."""
    p99: float
    """Milliseconds that 99 of 100 waited at most."""
    failures: int
    """Attempts that failed."""
    given_up: int = 0
    """Users who ran out of patience."""


def broken_by(step: Step, p99_limit: float = math.inf) -> str | None:
    """Say in words why a step did not hold; None if it did."""
    if step.given_up:
        return f"{step.given_up} {'user' if step.given_up == 1 else 'users'} gave up"
    if step.achieved < ACHIEVED_AT_LEAST * step.offered:
        return f"{step.achieved:.0f} a second where {step.offered:.0f} were offered"
    if step.p99 > p99_limit:
        return f"the 99th percentile is {step.p99:.0f} ms, above {p99_limit:g}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a ramp found."""

    held: Step | None
    """The last step before the first that did not hold; None if the first did not."""
    broke: Step | None
    """The first that did not; None if all held."""
    reason: str

    @property
    def sentence(self) -> str:
        """In words."""
        if self.broke is None:
            offered = "nothing" if self.held is None else f"{self.held.offered:.0f} a second"
            return f"Every step held, up to {offered}: the breaking point is above."
        held = (
            "not even the first step held"
            if self.held is None
            else (f"the last step that held was {self.held.offered:.0f} a second")
        )
        return f"It broke at {self.broke.offered:.0f} users a second ({self.reason}); {held}."


def judge(steps: Sequence[Step], p99_limit: float = math.inf) -> Verdict:
    """Find the last step that held before the first that did not."""
    held: Step | None = None
    for step in steps:
        reason = broken_by(step, p99_limit)
        if reason is not None:
            return Verdict(held=held, broke=step, reason=reason)
        held = step
    return Verdict(held=held, broke=None, reason="")
