"""What an operator asks for; the analyzer makes a task of it by adding weights, claims and keys."""

from dataclasses import dataclass

from common.dummy_spec import DummySpec
from common.shuffler_spec import PERMUTES, ShufflerSpec
from common.suites import DEFAULT_SUITE


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """The operator's part of a task. Its rules are those of Task and are checked there."""

    domain_size: int
    local_epsilon: float
    """Above 0 and at most 20, or infinite for reports without noise."""
    delta: float
    n_min: int
    target_size: int
    deadline: int
    """Seconds since 1970 UTC."""
    shuffler_key: bytes
    protocol: str = "od-hp"
    labels: tuple[str, ...] = ()
    buckets: int = 0
    """For hashing: a prime below domain_size. 0, or domain_size and more, reports plain items, as
    protocols that do not hash always do; 0 without a shuffler's help is the best number."""
    dummies_per_user: float = 0.0
    """On average, 0 or more: with 1.3 each user adds one, and one more with probability .3."""
    dummies: DummySpec | None = None
    """Any other law of the users' dummies; dummies_per_user is then 0."""
    shuffler: ShufflerSpec = PERMUTES
    """What the shuffler drops and adds."""
    assumed_honest_fraction: float = 1.0
    population: str = ""
    """Who is asked, if other tasks ask the same people; tasks of one population share a budget."""
    budget_epsilon: float | None = None
    """What all releases to the population together may cost; without it, local_epsilon."""
    budget_delta: float | None = None
    """Without it, delta."""
    suite: str = DEFAULT_SUITE
    """What reports and envelopes are sealed with; shuffler_key is a key of this suite."""
