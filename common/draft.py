"""What an operator asks for; the analyzer makes a task of it by adding weights, claims and keys."""

from dataclasses import dataclass


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
    protocols that do not hash always do."""
    dummies_per_user: float = 0.0
    """On average, 0 or more: with 1.3 each user adds one, and one more with probability .3."""
    assumed_honest_fraction: float = 1.0
