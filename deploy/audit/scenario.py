"""One thing that an audit plays or checks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from common.protocols import Kind
from deploy.audit.audited import Audited
from deploy.audit.finding import Outcome

ITEMS: Final[tuple[Kind, ...]] = ("categorical",)
EVERY_KIND: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario; it may be played in any process, on its own."""

    name: str
    """By which it is chosen, and by which its rows are known; small letters, hyphens and `+`."""
    title: str
    """What is played, in a few words."""
    play: Callable[[Audited, np.random.Generator], Outcome]
    """A function of a module. All it draws, but for keys and what services draw of their own, it
    draws from the generator, so that the same seed gives the same figures."""
    seconds: float = 1.0
    """About how long it takes at a quick run, so that the longest begin first."""
    kinds: tuple[Kind, ...] = ITEMS
    """Kinds of value of which an audited task may ask, for this to be played on it. What looks at
    items of the task itself is for items; what looks at tasks of its own, or at no value, for
    all."""
