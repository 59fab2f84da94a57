"""Mechanism specifications, and checks of a task's fields and labels."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, get_args, get_origin

from shuffledp.common import limits, protocols
from shuffledp.common.errors import TaskError
from shuffledp.common.task.labels import MAX_TEXT_BYTES, normalize


def check_int_range(name: str, value: int, minimum: int, maximum: int) -> int:
    """Return a field; raise TaskError unless it is a whole number from `minimum` to `maximum`."""
    if type(value) is not int:
        raise TaskError(f"{name} must be a whole number")
    if not minimum <= value <= maximum:
        rule = f"lie between {minimum} and {maximum}" if minimum < maximum else f"be {minimum}"
        raise TaskError(f"{name} is {value}; it must {rule}")
    return value


def whole(minimum: int, maximum: int) -> Callable[[str, int], int]:
    """Return the rule of a field from `minimum` to `maximum`, to state in its type."""
    return partial(check_int_range, minimum=minimum, maximum=maximum)


def check_fields(spec: Any) -> None:  # noqa: ANN401  # any spec
    """Raise TaskError unless every field keeps the rules, or is one of the words, of its type."""
    for name, (kind, rule) in limits.stated_rules(type(spec)).items():  # type: ignore[arg-type]  # mypy calls types unhashable
        if rule:
            rule(name, getattr(spec, name))
        if get_origin(kind) is Literal:
            shown = "mechanism" if name == "name" else name
            check_choice(shown, getattr(spec, name), get_args(kind))


def check_truth(name: str, value: object) -> bool:
    """Return a field; raise TaskError unless it is true or false."""
    if not isinstance(value, bool):
        raise TaskError(f"{name} must be true or false")
    return value


def check_open_range(
    name: str, value: float, low: float, high: float, *, or_high: bool = False
) -> None:
    """Raise TaskError unless a float field is above low and below high, or high if `or_high`."""
    if not (low < check_float(name, value) < high or (or_high and value == high)):
        below = "at most" if or_high else "below"
        raise TaskError(f"{name} is {value}; it must be above {low} and {below} {high}")


def check_float(name: str, value: float) -> float:
    """Return a float field; raise TaskError for second forms of a number: 2 of 2.0, -0.0 of 0.0."""
    if type(value) is not float:
        raise TaskError(f"{name} must be a number with a decimal point")
    if value == 0 and math.copysign(1, value) < 0:
        raise TaskError(f"{name} is -0.0; write 0.0")
    return value


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise TaskError unless a field is one of the words in `allowed`."""
    if value not in allowed:
        raise TaskError(f"{name} must be one of: {', '.join(allowed)}")


def check_printable(name: str, text: str, maximum: int, *, ascii_only: bool = True) -> None:
    """Raise TaskError unless a field is stripped printable text of at most `maximum` characters."""
    if type(text) is not str or not text.isprintable() or (ascii_only and not text.isascii()):
        raise TaskError(f"{name} must be printable {'ASCII ' * ascii_only}text")
    if text != text.strip():
        raise TaskError(f"{name} must not begin or end with whitespace")
    if len(text) > maximum:
        raise TaskError(f"{name} has {len(text)} characters; it may have at most {maximum}")


MAX_DOMAIN_SIZE: Final = 2**24
MAX_WEIGHT_SUM: Final = 2**63 - 1
MAX_REPORT_BYTES: Final = 65536
ReportBytes = Annotated[int, whole(1, MAX_REPORT_BYTES)]


def hierarchy_sizes(buckets: int, fan_out: int, groups: int = 1) -> tuple[int, ...]:
    """
    Return the number of nodes of each level of a hierarchy over buckets, the coarsest first.

    The last level has the buckets; a node of the level before joins up to `fan_out` neighbours of
    one group, until a group has at most `fan_out` nodes.
    """
    sizes = [buckets]
    while sizes[0] > fan_out:
        sizes.insert(0, -(-sizes[0] // fan_out))
    return tuple(groups * size for size in sizes)


class Spec:
    """Base of all specs; by default, of kinds of values other than items."""

    __slots__ = ()

    item_buckets: ClassVar[Literal[0]] = 0
    hash_buckets: ClassVar[int] = 0
    fan_out: ClassVar[Literal[0]] = 0

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of a person's attributes; none except of tables."""
        return ()

    def view_sizes(self, domain_size: int, groups: int) -> tuple[int, ...]:
        """Return the number of items of each view: by default of one, the domain's."""
        return (domain_size,)

    def domain_size_of(self, view_sizes: Sequence[int]) -> int:
        """Return the number of items, components or keys: by default of the last view."""
        return view_sizes[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismSpec(Spec):
    """
    A mechanism for items, with its integer weights.

    A true answer is true_weight / other_weight times as likely as a false one. Randomized response
    over `buckets` answers gives the true one with probability true_weight / W, and each other one
    with probability other_weight / W, where W = true_weight + (buckets - 1) · other_weight. Other
    mechanisms define their own use. Weights 1 and 0 mean no local noise: every report is true.
    """

    name: protocols.MechanismName
    buckets: Annotated[int, whole(2, MAX_DOMAIN_SIZE)]
    """Number of possible answers: hash values for hashing, items for GRR, 2 for each bit of a unary
    encoding, output cells for the square wave. For a hierarchy, its fan-out."""
    digits: Annotated[int, whole(1, 24)]
    """Digits of an item in base `buckets` (local hashing); levels of a hierarchy; otherwise 1."""
    true_weight: int
    other_weight: Annotated[int, whole(0, MAX_WEIGHT_SUM)]
    report_bytes: ReportBytes
    """Length of a report before sealing."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_int_range("true_weight", self.true_weight, self.other_weight + 1, MAX_WEIGHT_SUM)
        if self.other_weight == 0 and self.true_weight != 1:
            raise TaskError(
                f"true_weight is {self.true_weight}; where other_weight is 0 it must be 1"
            )
        total = self.true_weight + (self.buckets - 1) * self.other_weight
        check_int_range("the sum of the weights", total, 1, MAX_WEIGHT_SUM)

    @property
    def noiseless(self) -> bool:
        """Whether every report is true."""
        return self.other_weight == 0

    @property
    def item_buckets(self) -> int:  # type: ignore[override]  # a constant elsewhere
        """Number of answers; 0 in specs of other kinds of values."""
        return self.buckets

    @property
    def hash_buckets(self) -> int:  # type: ignore[override]  # a constant elsewhere
        """Number of buckets that values are hashed into; 0 for other mechanisms."""
        return self.buckets if self.name in {"local-hashing", "string-hashing"} else 0

    @property
    def fan_out(self) -> int:  # type: ignore[override]  # a constant elsewhere
        """Most nodes that a node of a hierarchy is split into; 0 for other mechanisms."""
        return self.buckets if self.name == "hierarchy" else 0

    def view_sizes(self, domain_size: int, groups: int) -> tuple[int, ...]:
        """Return the number of items of each view: of a hierarchy's levels, or the one domain's."""
        if not self.fan_out:
            return (domain_size,)
        sizes = hierarchy_sizes(domain_size // groups, self.fan_out, groups)
        if len(sizes) != self.digits:
            raise TaskError(f"digits is {self.digits}; the hierarchy has {len(sizes)} levels")
        return sizes

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Raise TaskError unless buckets and digits can represent `size` items."""
        if self.name in {"grr", "warner"} and (self.buckets != size or self.digits != 1):
            raise TaskError(
                f"GRR over {size} items needs {size} buckets and 1 digit; "
                f"the task has {self.buckets} and {self.digits}"
            )
        if self.name == "local-hashing" and self.buckets**self.digits < size:
            raise TaskError(
                f"{self.digits} digits in base {self.buckets} cannot represent {size} items"
            )


MAX_ATTRIBUTES: Final = 32
"""Maximum number of attributes of a person."""
MAX_DIMENSIONS: Final = 8192
"""Maximum number of numbers in one person's value."""
MAX_BOUND: Final = 1e12
"""Exclusive bound on the magnitude of a range's ends."""
_MIN_RELATIVE_WIDTH: Final = 1e-6
"""Minimum width of a range, relative to the larger magnitude of its ends."""
MAX_STEPS: Final = 2**20
MIX_SUM: Final = 2**32
"""Sum of the weights of the hybrid mechanism's two parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangedSpec(Spec):
    """A mechanism for one number, or for several, all in one range."""

    low: float
    high: float
    """Upper end of the range low .. high of every number; devices refuse numbers outside it."""

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberSpec(RangedSpec):
    """
    A mechanism that adds local noise to numbers.

    A number is rounded at random, without bias, to one of the two nearest points of a grid that
    divides the range into `steps` intervals. Unused fields are 0, except `sampled`, which is 1.
    """

    noiseless: ClassVar[Literal[False]] = False

    name: protocols.NumberMechanismName
    report_bytes: ReportBytes
    steps: Annotated[int, whole(0, MAX_STEPS)] = 0
    """Intervals of the grid; even, so that the middle of the range lies on it. If 0, there is no
    grid, and numbers are rounded to one of the ends."""
    true_weight: int = 0
    other_weight: Annotated[int, whole(0, MAX_WEIGHT_SUM)] = 0
    """The odds true_weight : other_weight of one coordinate's answer are at most
    e^(local ε / sampled). Both weights are 0 for Laplace noise."""
    scale: Annotated[int, whole(0, 2**40)] = 0
    """Scale of Laplace noise, in steps: a whole number."""
    reach: Annotated[int, whole(0, MAX_STEPS)] = 0
    """Half the width of the piecewise mechanism's band, in steps."""
    piecewise_weight: Annotated[int, whole(0, MIX_SUM - 1)] = 0
    """Probability that the hybrid mechanism uses the piecewise one, in units of 1 / MIX_SUM."""
    sampled: Annotated[int, whole(1, MAX_DIMENSIONS)] = 1
    """Number of coordinates in a report."""
    projected: Annotated[int, whole(0, MAX_DIMENSIONS)] = 0
    """Number of dimensions that vectors are first randomly projected to; 0 for no projection."""

    def __post_init__(self) -> None:
        super(NumberSpec, self).__post_init__()  # slots=True made another class
        if self.steps % 2:
            raise TaskError(f"steps is {self.steps}; it must be even")
        check_int_range("true_weight", self.true_weight, self.other_weight, MAX_WEIGHT_SUM)

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Raise TaskError unless a report's coordinates are among a person's `size` numbers."""
        if max(self.sampled, self.projected) > size:
            raise TaskError(
                f"sampled is {self.sampled} and projected {self.projected}; "
                f"a person has only {size} numbers"
            )


def check_end(name: str, end: float) -> None:
    """Raise TaskError unless an end of a range is in bounds."""
    check_open_range(name, end, -MAX_BOUND, MAX_BOUND)


def check_range(low: float, high: float) -> None:
    """Raise TaskError unless both ends are in bounds, in order and far apart."""
    check_end("low", low)
    check_end("high", high)
    if not low < high:
        raise TaskError(f"low is {low} and high {high}; low must be below high")
    minimum = _MIN_RELATIVE_WIDTH * max(abs(low), abs(high), _MIN_RELATIVE_WIDTH)
    if high - low < minimum:
        raise TaskError(
            f"low is {low} and high {high}; they must be at least {minimum:g} apart, so that "
            "floats can resolve the numbers between them"
        )


MAX_BITS: Final = 2048
MAX_HASHES: Final = 16
MAX_COHORTS: Final = 4096
MAX_QUESTION_CHARACTERS: Final = 64
PERMANENT_SUM: Final = 128
"""Denominator of RAPPOR's f: seven bits of a hash decide a permanent bit."""
INSTANT_SUM: Final = 2**16
"""Denominator of RAPPOR's p and q."""

Encoding = Literal["bloom", "labels"]
"""Bits that a text sets: one for each hash (`bloom`), or only its label's bit (`labels`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RapporSpec(Spec):
    """RAPPOR's parameters, with the symbols of the paper [EPK14]."""

    name: protocols.RapporMechanismName
    encoding: Encoding
    bits: Annotated[int, whole(2, MAX_BITS)]
    """k: bits of the filter; with `labels`, one per label."""
    hashes: Annotated[int, whole(1, MAX_HASHES)]
    """h: number of hashes; 1 with `labels`."""
    cohorts: Annotated[int, whole(1, MAX_COHORTS)]
    """m: number of cohorts, a power of two; 1 with `labels`."""
    permanent_weight: Annotated[int, whole(0, PERMANENT_SUM - 1)]
    """f · PERMANENT_SUM: probability that a fair coin replaces a bit permanently."""
    unset_weight: Annotated[int, whole(0, INSTANT_SUM - 1)]
    """p · INSTANT_SUM: probability that a report shows an unset permanent bit as set."""
    set_weight: int
    """q · INSTANT_SUM: probability that a report shows a set permanent bit as set. With p = 0 and
    q = 1 there is no instantaneous noise."""
    most_bytes: Annotated[int, whole(1, MAX_TEXT_BYTES)]
    """Maximum length of a text, in bytes of UTF-8; devices refuse longer ones."""
    lasting_question: str = ""
    """Name of a question that may be asked again; a population's tasks share permanent responses
    to it. If empty, the task has its own responses."""
    report_bytes: ReportBytes

    def __post_init__(self) -> None:
        check_fields(self)
        if self.cohorts & (self.cohorts - 1):
            raise TaskError(f"cohorts is {self.cohorts}; it must be a power of two")
        if self.encoding == "bloom" and self.bits > 32 and self.bits % 8:  # noqa: PLR2004  # whole bytes
            raise TaskError(f"bits is {self.bits}; above 32 it must be divisible by 8")
        if self.encoding == "labels" and (self.hashes, self.cohorts) != (1, 1):
            raise TaskError(
                f"hashes is {self.hashes} and cohorts is {self.cohorts}; both must be 1 for the "
                "encoding labels"
            )
        check_int_range("set_weight", self.set_weight, self.unset_weight + 1, INSTANT_SUM)
        check_printable("lasting_question", self.lasting_question, MAX_QUESTION_CHARACTERS)
        if self.lasting_question and self.permanent_weight == 0:
            raise TaskError(
                "permanent_weight is 0; it must be above 0 for a named question, whose tasks share "
                "permanent noise"
            )
        if self.noiseless:
            raise TaskError(
                "permanent_weight is 0, unset_weight is "
                f"{self.unset_weight} and set_weight is {self.set_weight}: a report would reveal "
                "bits with certainty"
            )

    @property
    def one_time(self) -> bool:
        """Whether reports are the permanent response itself, without instantaneous noise."""
        return (self.unset_weight, self.set_weight) == (0, INSTANT_SUM)

    @property
    def noiseless(self) -> bool:
        """Whether a report can reveal a bit with certainty."""
        certain = self.unset_weight == 0 or self.set_weight == INSTANT_SUM
        return self.permanent_weight == 0 and certain

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Raise TaskError unless the labels fit the encoding, and devices can send each as text."""
        if self.encoding == "labels" and (len(labels), self.bits) != (size, size):
            raise TaskError(
                f"the encoding labels needs {size} bits and labels, as many as domain_size; "
                f"the task has {self.bits} and {len(labels)}"
            )
        if self.encoding == "bloom" and (labels or size != 1):
            raise TaskError(
                f"the encoding bloom needs 0 labels and a domain_size of 1; "
                f"the task has {len(labels)} and {size}"
            )
        for item, label in enumerate(labels):
            length = len(label.encode())
            if length > self.most_bytes:
                raise TaskError(
                    f"the label of item {item} has {length} bytes in UTF-8; most_bytes is "
                    f"{self.most_bytes}, and nobody could answer it"
                )
            if label != normalize(label):
                raise TaskError(
                    f"the label of item {item} is not in Unicode's normal form C without "
                    "whitespace at either end, in which devices send every text: nobody could "
                    "answer it"
                )


MAX_KEYS: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueSpec(Spec):
    """PrivKV's weights: one pair for a key's ownership, one for the key's value [YHMZ19]."""

    noiseless: ClassVar[Literal[False]] = False

    name: protocols.KeyValueMechanismName
    low: float
    high: float
    """Upper end of the range low .. high of every value; devices refuse values outside it."""
    steps: Annotated[int, whole(2, MAX_STEPS)]
    """Intervals of the grid that values are rounded to, as in NumberSpec; at least 2."""
    key_true_weight: int
    key_other_weight: int
    """The odds of the ownership answer are at most e^ε1, where ε1 is the keys' part of the local ε.
    Later iterations of PrivKVM estimate only values: odds of 1 : 1 reveal and cost nothing."""
    value_true_weight: int
    value_other_weight: int
    """The odds of the value's sign are at most e^ε2, where ε2 is the rest of the local ε."""
    fakes: tuple[float, ...]
    """Values used for keys that are not owned, one per key: the means of the previous iteration
    (PrivKVM). If empty, the middle of the range (PrivKV)."""
    report_bytes: ReportBytes

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_fields(self)
        if self.steps % 2:
            raise TaskError(f"steps is {self.steps}; it must be even")
        for part, true, other, margin in (
            ("key", self.key_true_weight, self.key_other_weight, 0),
            ("value", self.value_true_weight, self.value_other_weight, 1),
        ):
            check_int_range(f"{part}_other_weight", other, 1, MAX_WEIGHT_SUM)
            check_int_range(f"{part}_true_weight", true, other + margin, MAX_WEIGHT_SUM - other)
        for fake in self.fakes:
            if not self.low <= check_float("a fake value", fake) <= self.high:
                raise TaskError(
                    f"a fake value is {fake}; it must lie between {self.low} and {self.high}"
                )

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Raise TaskError unless there is no fake value, or one for each of `size` keys."""
        if self.fakes and len(self.fakes) != size:
            raise TaskError(f"there are {len(self.fakes)} fake values and {size} keys")


MAX_CODE_BYTES: Final = 16
_HASH_BYTES: Final = 5
"""Least length of a hash. A shorter one could be that of a text which is tried by chance."""
MAX_SPELLED_BYTES: Final = 255
MAX_SPELLED: Final = 2**18
"""Maximum number of hashes to spell times their bytes; the analyzer counts a kilobyte for each."""
OPEN_BUCKETS: Final = (257, 65521)
"""Range of the buckets: a prime that exceeds every byte, and fits two bytes."""

OpenEncoding = Literal["text", "code", "hash", "spell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpec(Spec):
    """
    Local hashing of a random part of a value that no list holds, with its integer weights.

    A user hashes the first bytes of a code, a random number of them. A code is a text in UTF-8,
    filled up with zero bytes; an integer, big-endian; or the start of a text's SHA-256. To spell
    texts whose hashes were found, the task's labels are these hashes, in hexadecimal: a user hashes
    the text's label and a random byte of the text.
    """

    noiseless: ClassVar[Literal[False]] = False

    name: protocols.OpenMechanismName
    encoding: OpenEncoding
    buckets: Annotated[int, whole(*OPEN_BUCKETS)]
    """Number g of hash values: a prime."""
    true_weight: int
    other_weight: Annotated[int, whole(1, MAX_WEIGHT_SUM)]
    code_bytes: int
    most_bytes: Annotated[int, whole(1, MAX_SPELLED_BYTES)]
    """Maximum length of a text that is hashed or spelled, in bytes of UTF-8."""
    report_bytes: ReportBytes

    def __post_init__(self) -> None:
        check_fields(self)
        hashes = self.encoding in {"hash", "spell"}
        check_int_range("code_bytes", self.code_bytes, _HASH_BYTES if hashes else 1, MAX_CODE_BYTES)
        check_int_range("true_weight", self.true_weight, self.other_weight + 1, MAX_WEIGHT_SUM)
        total = self.true_weight + (self.buckets - 1) * self.other_weight
        check_int_range("the sum of the weights", total, 1, MAX_WEIGHT_SUM)

    @property
    def hash_buckets(self) -> int:  # type: ignore[override]  # a constant elsewhere
        """Number of buckets."""
        return self.buckets

    @property
    def most_value_bytes(self) -> int:
        """Maximum length of a user's value in bytes."""
        return self.code_bytes if self.encoding in {"text", "code"} else self.most_bytes

    def check_values(self, size: int, labels: Sequence[str]) -> None:
        """Raise TaskError unless a task that spells texts has their hashes as labels, else none."""
        if self.encoding != "spell":
            if labels or size != 1:
                raise TaskError(
                    f"with the encoding {self.encoding}, labels and domain_size are left out; "
                    f"there are {len(labels)} labels, and domain_size is {size}"
                )
            return
        digits = re.compile(f"[0-9a-f]{{{2 * self.code_bytes}}}")
        if len(labels) != size or not all(map(digits.fullmatch, labels)):
            raise TaskError(
                f"the encoding spell needs as many labels as domain_size, {size}, each a hash of "
                f"{2 * self.code_bytes} hexadecimal digits"
            )
        check_int_range("domain_size times most_bytes", size * self.most_bytes, 1, MAX_SPELLED)
        if size >= self.buckets:
            raise TaskError(
                f"there are {size} hashes; buckets is {self.buckets}, and must exceed them"
            )
