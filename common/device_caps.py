"""The caps of a device on its answers, by the names of their settings."""

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from shuffledp.common.limits import MAX_LOCAL_EPSILON


def _local_cap(cap: float) -> float:
    if not (0 < cap <= MAX_LOCAL_EPSILON or cap == math.inf):
        raise ValueError(
            f"is {cap:g}; it must be above 0 and at most {MAX_LOCAL_EPSILON:g}, or infinite"
        )
    return cap


@dataclass(frozen=True, kw_only=True)
class DeviceCaps:
    """Limits on one answer and on all answers of a person; settings check their ranges."""

    local_epsilon_cap: Annotated[float, AfterValidator(_local_cap)] = 4.0
    """Maximum local ε of one answer to a task with one shuffler; infinite for no limit."""
    coalition_epsilon_cap: Annotated[float, AfterValidator(_local_cap)] = 4.0
    """Maximum ε of one answer against the analyzer with any one shuffler, likewise. If both are
    infinite, no task needs local noise."""
    total_local_epsilon_cap: Annotated[float, Field(gt=0)] = 20.0
    """Maximum sum of the local ε of a person's answers with one shuffler; infinite for no limit."""
    total_coalition_epsilon_cap: Annotated[float, Field(gt=0)] = 20.0
    """Maximum composed coalition ε of all answers of a person, at total_delta_cap."""
    total_central_epsilon_cap: Annotated[float, Field(gt=0, lt=math.inf)] = 1.0
    """Maximum composed central ε of all answers of a person, at total_delta_cap."""
    total_delta_cap: Annotated[float, Field(gt=0, lt=1)] = 1e-4
