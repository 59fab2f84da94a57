"""The rules that a task's mechanism, dummies and shuffler must meet for its protocol."""

import math
import re
from collections.abc import Sequence
from typing import Final

from common.errors import TaskError
from common.protocols import Kind, Protocol
from common.task.dummies import Dummies
from common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.task.specs import (
    MAX_DIMENSIONS,
    MAX_DOMAIN_SIZE,
    MAX_KEYS,
    MAX_SPELLED,
    OPEN_BUCKETS,
    AnySpec,
    KeyValueSpec,
    MechanismSpec,
    NumberSpec,
    OpenSpec,
    RapporSpec,
    check_choice,
    check_int_range,
    normalize,
)

MAX_SHUFFLER_DUMMIES: Final = 10**9
"""Maximum expected number of shuffler dummies in one batch."""
MAX_SHUFFLER_DRAWS: Final = 10**10
"""Maximum expected number of draws for one batch's shuffler dummies; this many take minutes."""

_SIZES: Final[dict[Kind, tuple[int, int]]] = {
    "categorical": (2, MAX_DOMAIN_SIZE),
    "ordered": (2, MAX_DOMAIN_SIZE),
    "string": (1, MAX_DOMAIN_SIZE),
    "open": (1, OPEN_BUCKETS[1]),
    "mean": (1, 1),
    "vector": (2, MAX_DIMENSIONS),
    "key-value": (1, MAX_KEYS),
}


def check_domain_size(domain_size: int, kind: Kind = "categorical") -> None:
    """Raise TaskError unless a kind of task may have this many items, numbers or keys."""
    check_int_range("domain_size", domain_size, *_SIZES[kind])


def check_composition(
    protocol: Protocol,
    spec: AnySpec,
    dummies: Dummies,
    shuffler: ShufflerSpec,
    *,
    domain_size: int,
    labels: Sequence[str],
) -> None:
    """Raise TaskError unless the mechanism, dummies and shuffler match a task's protocol."""
    if spec.name not in protocol.mechanisms:
        stated = f", with {spec.buckets} buckets" if isinstance(spec, MechanismSpec) else ""
        raise TaskError(
            f"the protocol {protocol.name} uses the mechanism {' or '.join(protocol.mechanisms)}; "
            f"the task has {spec.name}{stated}"
        )
    if spec.noiseless and protocol.local_noise == "required":
        raise TaskError(
            f"the protocol {protocol.name} needs local noise: local_epsilon must be finite, and "
            "other_weight above 0"
        )
    if not spec.noiseless and protocol.local_noise == "none":
        raise TaskError(
            f"the protocol {protocol.name} has no local noise: local_epsilon must be inf, and "
            "other_weight 0"
        )
    _check_dummies(protocol, dummies, domain_size)
    _check_shuffler(protocol, shuffler, domain_size)
    if isinstance(spec, MechanismSpec):
        _check_items(protocol, spec, dummies, domain_size, labels)
    else:
        _check_other_kinds(spec, domain_size, labels)


def _check_dummies(protocol: Protocol, dummies: Dummies, domain_size: int) -> None:
    if protocol.dummy_distributions:
        check_choice(
            "the distribution of this protocol's dummies",
            dummies.distribution,
            protocol.dummy_distributions,
        )
    elif dummies.maximum > 0:
        raise TaskError(
            f"the protocol {protocol.name} has no dummies; "
            f"the task has up to {dummies.maximum} for each user"
        )
    dummies.check_domain_size(domain_size)


def _check_shuffler(protocol: Protocol, spec: ShufflerSpec, domain_size: int) -> None:
    check_choice(
        "the distribution of this protocol's shuffler",
        spec.noise.distribution,
        (protocol.shuffler_distribution,),
    )
    if spec.keep_probability < 1 and not protocol.samples:
        raise TaskError(
            f"the protocol {protocol.name} keeps every report; keep_weight is "
            f"{spec.keep_weight}, and must be {KEEP_SUM}"
        )
    expected = math.ceil(domain_size * spec.noise.moments()[0])
    check_int_range("the shuffler's expected dummies", expected, 0, MAX_SHUFFLER_DUMMIES)
    draws = math.ceil(domain_size * spec.noise.draws_per_item)
    check_int_range("the shuffler's expected draws", draws, 0, MAX_SHUFFLER_DRAWS)


def _check_items(
    protocol: Protocol,
    spec: MechanismSpec,
    dummies: Dummies,
    domain_size: int,
    labels: Sequence[str],
) -> None:
    if protocol.domain == "binary" and domain_size != 2:  # noqa: PLR2004  # a bit has two values
        raise TaskError(
            f"the protocol {protocol.name} collects a bit; domain_size is {domain_size}, "
            "and must be 2"
        )
    if protocol.buckets not in {0, spec.buckets} and spec.name == protocol.mechanism:
        raise TaskError(
            f"the protocol {protocol.name} hashes into {protocol.buckets} buckets; the task "
            f"has {spec.buckets}"
        )
    if protocol.domain == "labelled" and not labels:
        raise TaskError(f"the protocol {protocol.name} hashes labels; the task has none")
    plain = spec.name in {"grr", "warner"}
    if plain and (spec.buckets != domain_size or spec.digits != 1):
        raise TaskError(
            f"GRR over {domain_size} items needs {domain_size} buckets and 1 digit; "
            f"the task has {spec.buckets} and {spec.digits}"
        )
    if spec.name == "local-hashing" and spec.buckets**spec.digits < domain_size:
        raise TaskError(
            f"{spec.digits} digits in base {spec.buckets} cannot represent {domain_size} items"
        )
    if spec.name == "hierarchy" and len(dummies.views) != spec.digits:
        raise TaskError(
            f"the dummies have {len(dummies.views)} levels; the hierarchy has {spec.digits}"
        )


def _check_texts(labels: Sequence[str], most_bytes: int) -> None:
    """Raise TaskError unless devices can send every label as a text."""
    for item, label in enumerate(labels):
        size = len(label.encode())
        if size > most_bytes:
            raise TaskError(
                f"the label of item {item} has {size} bytes in UTF-8; most_bytes is {most_bytes}, "
                "and nobody could answer it"
            )
        if label != normalize(label):
            raise TaskError(
                f"the label of item {item} is not in Unicode's normal form C without whitespace at "
                "either end, in which devices send every text: nobody could answer it"
            )


def _check_other_kinds(
    spec: RapporSpec | OpenSpec | NumberSpec | KeyValueSpec, size: int, labels: Sequence[str]
) -> None:
    if isinstance(spec, OpenSpec):
        _check_codes(spec, size, labels)
    elif isinstance(spec, RapporSpec):
        if spec.encoding == "labels" and (len(labels), spec.bits) != (size, size):
            raise TaskError(
                f"the encoding labels needs {size} bits and labels, as many as domain_size; "
                f"the task has {spec.bits} and {len(labels)}"
            )
        if spec.encoding == "bloom" and (labels or size != 1):
            raise TaskError(
                f"the encoding bloom needs 0 labels and a domain_size of 1; "
                f"the task has {len(labels)} and {size}"
            )
        _check_texts(labels, spec.most_bytes)
    elif isinstance(spec, NumberSpec):
        if max(spec.sampled, spec.projected) > size:
            raise TaskError(
                f"sampled is {spec.sampled} and projected {spec.projected}; "
                f"a person has only {size} numbers"
            )
    elif spec.fakes and len(spec.fakes) != size:
        raise TaskError(f"there are {len(spec.fakes)} fake values and {size} keys")


def _check_codes(spec: OpenSpec, size: int, labels: Sequence[str]) -> None:
    """Raise TaskError unless a task that spells texts has their hashes as labels, others none."""
    if spec.encoding != "spell":
        if labels or size != 1:
            raise TaskError(
                f"with the encoding {spec.encoding}, labels and domain_size are left out; there "
                f"are {len(labels)} labels, and domain_size is {size}"
            )
        return
    digits = re.compile(f"[0-9a-f]{{{2 * spec.code_bytes}}}")
    if len(labels) != size or not all(map(digits.fullmatch, labels)):
        raise TaskError(
            f"the encoding spell needs as many labels as domain_size, {size}, each a hash of "
            f"{2 * spec.code_bytes} hexadecimal digits"
        )
    check_int_range("domain_size times most_bytes", size * spec.most_bytes, 1, MAX_SPELLED)
    if size >= spec.buckets:
        raise TaskError(f"there are {size} hashes; buckets is {spec.buckets}, and must exceed them")
