"""What an operator asks for; the analyzer makes a task of it by adding weights, claims and keys."""

from dataclasses import dataclass

from common.crypto.hpke import DEFAULT_SUITE
from common.task.dummy_spec import PERMUTES, DummySpec, ShufflerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberDraft:
    """The range of the numbers that a mean or a vector is made of."""

    low: float = -1.0
    high: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDraft:
    """RAPPOR's parameters: k, h, m, f, p and q of its paper [EPK14]."""

    bits: int = 0
    """k. 0 for 32, or where the texts are the draft's labels for a bit each."""
    hashes: int = 1
    """h."""
    cohorts: int = 64
    """m, a power of two; with labels there is one, whether this is 1 or left as it is."""
    permanent: float = 0.5
    """f; rounded up to the next 1/128."""
    unset: float = 0.25
    """p; rounded up to the next 1/65,536."""
    set: float = 0.75
    """q; rounded down likewise. 0 and 1 for reports that are the permanent response itself."""
    most_bytes: int = 64
    """Longest text, as UTF-8."""
    question: str = ""
    """Name of what is asked, if the population may be asked it again: permanent responses are then
    the same in all its tasks. Nothing: they are the task's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDraft:
    """PrivKV's range, and how its ε is shared out [YHMZ19]."""

    low: float = -1.0
    high: float = 1.0
    key_share: float = 0.5
    """Of local_epsilon, for whether a key is owned; the rest is for its value."""
    fakes: tuple[float, ...] = ()
    """What stands for the value of a key that is not owned, one a key: the means of the iteration
    before. Nothing: the middle of the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """The operator's part of a task. Its rules are those of Task and are checked there."""

    delta: float
    n_min: int
    target_size: int
    deadline: int
    """Seconds since 1970 UTC."""
    shuffler_key: bytes
    protocol: str = "od-hp"
    domain_size: int = 1
    """Items, the numbers of a vector, or keys; 1 for a number, and for texts that no label names
    beforehand."""
    local_epsilon: float = 0.0
    """Above 0 and at most 20, or infinite for reports without noise. 0 for texts, whose chances
    decide."""
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
    numbers: NumberDraft | None = None
    """Of a protocol for numbers; without it, their range is -1 .. 1."""
    texts: TextDraft | None = None
    """Of RAPPOR; without it, the numbers that the class gives."""
    pairs: PairDraft | None = None
    """Of PrivKV; without it, the numbers that the class gives."""
