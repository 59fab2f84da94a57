"""An operator's draft of a task; the analyzer adds weights, claims and its own key."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES
from shuffledp.common.limits import MAX_UNIX_TIME, MAX_USERS, parse_amount, parse_word
from shuffledp.common.task.domain_spec import AttributeSpec, BreakdownSpec, EdgesSpec
from shuffledp.common.task.dummies import MAX_DUMMIES
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.shuffler_spec import NO_NOISE, PERMUTE_ONLY, ItemNoise, ShufflerSpec
from shuffledp.common.task.specs import MAX_DOMAIN_SIZE, whole
from shuffledp.common.task.token_spec import TokenSpec

_ItemCount = Annotated[int, whole(0, MAX_DOMAIN_SIZE)]
_UserCount = Annotated[int, whole(0, MAX_USERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberDraft:
    """The range of the numbers in a mean or vector task."""

    low: float = -1.0
    high: float = 1.0
    radices: tuple[int, ...] = ()
    """For digits: the number of values of each, the most significant first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDraft:
    """RAPPOR's parameters, with the symbols of the paper [EPK14]."""

    bits: _ItemCount = 0
    """k: bits of the filter. 0 means 32, or one bit per label if there are labels."""
    hashes: _ItemCount = 1
    """h: number of hashes."""
    cohorts: _ItemCount = 64
    """m: number of cohorts, a power of two. With labels it becomes 1; set 1 or keep the default."""
    permanent: float = 0.5
    """f: probability that a fair coin replaces a bit permanently; rounded up to 128ths."""
    unset: float = 0.25
    """p: probability that an unset permanent bit is reported as set; rounded up to a multiple of
    1/65,536."""
    set: float = 0.75
    """q: probability that a set permanent bit is reported as set; rounded down to a multiple of
    1/65,536. With p = 0 and q = 1, reports are the permanent response itself."""
    most_bytes: _ItemCount = 64
    """Maximum length of a text, in bytes of UTF-8."""
    question: str = ""
    """Name of a question that the population may be asked again; its tasks share permanent
    responses. If empty, the task has its own responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDraft:
    """The form of the values that `discover` finds."""

    encoding: str = "text"
    """text: short texts; code: integers; hash: the hashes of longer texts; spell: the texts whose
    hashes are the task's labels."""
    code_bytes: _ItemCount = 8
    """Bytes of a code: of a text, an integer or a hash; at most 16."""
    most_bytes: _ItemCount = 64
    """Maximum length of a text that is hashed or spelled, in bytes of UTF-8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDraft:
    """The range of PrivKV's values, and the split of its local ε [YHMZ19]."""

    low: float = -1.0
    high: float = 1.0
    key_share: float = 0.5
    """Share of local_epsilon for the ownership of a key; the rest is for its value."""
    fakes: tuple[float, ...] = ()
    """Values used for keys that are not owned, one per key: the means of the previous iteration. If
    empty, the middle of the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDraft:
    """The attributes of a task for tables, and the tables wanted."""

    attributes: tuple[AttributeSpec, ...]
    tables: tuple[tuple[str, ...], ...] = field(default=(), metadata={"key": "pairs"})
    """The names of the two attributes, or of the one, of each table; empty for every pair."""
    margins: bool = False
    """Whether each attribute also gets a table of its own, which makes margins more accurate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayDraft:
    """The second shuffler of a task with two, which adds dummies and drops nothing."""

    name: str
    key: bytes
    """Its key for layers, signed, as in relay.pub; unsigned in simulations."""
    noise: ItemNoise = NO_NOISE
    noises: tuple[ItemNoise, ...] = field(default=(), metadata={"key": "views"})
    """Its noise of each view, if they differ; `noise` is then left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """
    An operator's parameters for a task.

    A field's type states a rule only if it bounds the builder's work; Task has all others.
    """

    delta: float
    n_min: _UserCount
    target_size: _UserCount
    deadline: Annotated[int, whole(0, MAX_UNIX_TIME)]
    """Seconds since 1970 UTC."""
    shuffler_key: bytes
    """The shuffler's key for envelopes, signed, as in envelope.pub; unsigned in simulations."""
    protocol: str = "od-hp"
    domain_size: _ItemCount = 1
    """Number of items, vector components or keys; 1 for a single number and for texts without
    labels. With labels, 1 means the number of labels."""
    local_epsilon: float = 0.0
    """Above 0 and at most 20, or infinite for reports without noise. 0 for texts, whose
    probabilities imply it."""
    labels: tuple[str, ...] = ()
    buckets: _ItemCount = 0
    """For a hierarchy: the fan-out. For hashing: a prime below domain_size. 0 means the protocol's
    own or the optimal number if a hashing protocol relies on no shuffler, and no hashing otherwise.
    domain_size or more means no hashing, except of strings. For discover: a prime from 257 on; 0
    means the optimal one."""
    dummies_per_user: Annotated[float, partial(parse_amount, maximum=MAX_DUMMIES)] = 0.0
    """Average number, 0 or more. If 1.3, each user adds one dummy, or two with probability .3."""
    dummies: AnyDummies | None = None
    """Explicit distribution of the users' dummies; dummies_per_user must then be 0."""
    shuffler: ShufflerSpec = PERMUTE_ONLY
    """The shuffler's sampling and dummies."""
    noises: tuple[ItemNoise, ...] = field(default=(), metadata={"key": "shuffler_views"})
    """The shuffler's dummies of each view, if they differ; `shuffler` then has none."""
    shuffler_name: str = ""
    """Name of the shuffler's operator; a task with a relay must state it."""
    relay: RelayDraft | None = None
    """The second shuffler; None for a task with one."""
    assumed_honest_fraction: float = 1.0
    population: str = ""
    """Name of the population, if several tasks ask the same people; those tasks share a budget."""
    budget_epsilon: float | None = None
    """Maximum composed central ε of all releases to the population. None means the local ε or, if
    that is infinite and there is no population, the largest ε that can be certified."""
    budget_delta: float | None = None
    """δ of the budget; by default, delta."""
    suite: Annotated[str, partial(parse_word, allowed=tuple(SUITES))] = DEFAULT_SUITE
    """HPKE suite of reports, layers and envelopes, and of the shufflers' keys."""
    numbers: NumberDraft | None = None
    """Only for protocols for numbers; by default, the range is -1 .. 1."""
    texts: TextDraft | None = None
    """Only for RAPPOR; by default, TextDraft()."""
    open: OpenDraft | None = None
    """Only for discover; by default, OpenDraft()."""
    pairs: PairDraft | None = None
    """Only for PrivKV; by default, PairDraft()."""
    tables: TableDraft | None = None
    """The attributes of a task for tables, which needs it."""
    edges: EdgesSpec | None = None
    """Edges of the buckets of numbers; domain_size may then be left out."""
    breakdown: BreakdownSpec | None = None
    """A public attribute to break results down by. domain_size and labels are those of one group;
    the task gets an item for each pair of group and value."""
    title: str = ""
    prompt: str = ""
    """The question that a person is asked."""
    purpose: str = ""
    """What the result is for."""
    series: str = ""
    """Name of the series that the task is a round of."""
    round: int = 0
    """Number of the round in the series, from 1; 0 without a series."""
    tokens: TokenSpec | None = None
    """The issuer's key for the task's tokens. None: anybody may submit any number of times."""
