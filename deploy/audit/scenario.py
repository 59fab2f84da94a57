"""One scenario of an audit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from common.protocols import Kind
from deploy.audit.finding import Findings
from deploy.audit.subject import AuditSubject

ITEMS: Final[tuple[Kind, ...]] = ("categorical",)
EVERY_KIND: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario. Each runs in any process, on its own."""

    name: str
    """Lower-case letters, hyphens and `+`; `--scenario` takes it, and its rows carry it."""
    title: str
    """The title in a list of scenarios."""
    run: Callable[[AuditSubject, np.random.Generator], Findings]
    """A module-level function. It draws from the generator only (services and key generation use
    the system's randomness), so that one seed gives the same figures again."""
    weakness: str
    """What `--self-test` breaks, in one sentence."""
    run_broken: Callable[[AuditSubject, np.random.Generator], Findings]
    """The same scenario with that weakness: a finding must fail. No findings where the task has
    nothing to break."""
    seconds: float = 1.0
    """Approximate duration of a quick run; the longest start first."""
    kinds: tuple[Kind, ...] = ITEMS
    """Kinds of value for which it runs."""
