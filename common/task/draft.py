"""An operator's draft, which the analyzer completes to a task with weights, claims and keys."""

from dataclasses import dataclass

from common.crypto.hpke import DEFAULT_SUITE
from common.task.dummy_spec import PERMUTE_ONLY, DummySpec, ShufflerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberDraft:
    """The range of the numbers of a mean or a vector."""

    low: float = -1.0
    high: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDraft:
    """RAPPOR's parameters: k, h, m, f, p and q of its paper [EPK14]."""

    bits: int = 0
    """k; 0 stands for 32 bits, or for one bit per label if there are labels."""
    hashes: int = 1
    """h."""
    cohorts: int = 64
    """m, a power of two. With labels, which have one cohort: 1 or the default."""
    permanent: float = 0.5
    """f; rounded up to the next 1/128."""
    unset: float = 0.25
    """p; rounded up to the next 1/65,536."""
    set: float = 0.75
    """q; rounded down to the next 1/65,536. With p = 0 and q = 1, reports are the permanent
    response itself."""
    most_bytes: int = 64
    """Maximum bytes of a text in UTF-8."""
    question: str = ""
    """Name of the question, if the population may be asked it again: permanent responses are then
    shared by its tasks. If empty, they are the task's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDraft:
    """PrivKV's range, and the split of its ε [YHMZ19]."""

    low: float = -1.0
    high: float = 1.0
    key_share: float = 0.5
    """Share of local_epsilon for the ownership of a key; the rest is for its value."""
    fakes: tuple[float, ...] = ()
    """Values used for keys that are not owned, one per key: the means of the previous iteration. If
    empty, the middle of the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """The operator's part of a task, checked when the analyzer makes the Task."""

    delta: float
    n_min: int
    target_size: int
    deadline: int
    """Seconds since 1970 UTC."""
    shuffler_key: bytes
    protocol: str = "od-hp"
    domain_size: int = 1
    """Number of items, vector components or keys; 1 for a single number and for texts without
    labels."""
    local_epsilon: float = 0.0
    """Above 0 and at most 20, or infinite for reports without noise. 0 for texts, whose
    probabilities imply it."""
    labels: tuple[str, ...] = ()
    buckets: int = 0
    """For hashing: a prime below domain_size. 0, or domain_size and more, reports plain items, as
    protocols that do not hash always do; without a shuffler, 0 chooses the best number."""
    dummies_per_user: float = 0.0
    """Average number, 0 or more: with 1.3 each user adds one, and one more with probability .3."""
    dummies: DummySpec | None = None
    """Any other distribution of the users' dummies; dummies_per_user is then 0."""
    shuffler: ShufflerSpec = PERMUTE_ONLY
    """The shuffler's sampling and dummies."""
    assumed_honest_fraction: float = 1.0
    population: str = ""
    """Name of the population, if several tasks ask the same people; they share a budget."""
    budget_epsilon: float | None = None
    """Maximum composed central ε of all releases to the population; by default, local_epsilon."""
    budget_delta: float | None = None
    """By default, delta."""
    suite: str = DEFAULT_SUITE
    """HPKE suite of reports and envelopes; shuffler_key is a key of this suite."""
    numbers: NumberDraft | None = None
    """For protocols for numbers; by default, their range is -1 .. 1."""
    texts: TextDraft | None = None
    """For RAPPOR; by default, TextDraft's defaults."""
    pairs: PairDraft | None = None
    """For PrivKV; by default, PairDraft's defaults."""
