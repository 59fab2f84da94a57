"""Checks that a task's mechanism, dummies and shuffler match its protocol."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from common.errors import TaskError
from common.protocols import Kind, Protocol, protocol_named
from common.task.dummy_spec import KEEP_SUM
from common.task.specs import (
    MAX_DIMENSIONS,
    MAX_DOMAIN_SIZE,
    MAX_KEYS,
    KeyValueSpec,
    MechanismSpec,
    NumberSpec,
    RapporSpec,
    normalised,
    one_of,
    within,
)

if TYPE_CHECKING:
    from common.task.task import Task

MAX_SHUFFLER_DUMMIES: Final = 10**9
"""Maximum expected number of shuffler dummies in one batch."""
MAX_SHUFFLER_DRAWS: Final = 10**10
"""Maximum expected number of integers drawn for them, which takes minutes."""

_SIZES: Final[dict[Kind, tuple[int, int]]] = {
    "categorical": (2, MAX_DOMAIN_SIZE),
    "string": (1, MAX_DOMAIN_SIZE),
    "mean": (1, 1),
    "vector": (2, MAX_DIMENSIONS),
    "key-value": (1, MAX_KEYS),
}


def check_domain_size(domain_size: int, kind: Kind = "categorical") -> None:
    """Check the number of items, numbers or keys of a kind of task, or raise TaskError."""
    within("domain_size", domain_size, *_SIZES[kind])


def check_composition(task: "Task") -> None:
    """Check a task against the rules of its protocol, or raise TaskError."""
    protocol, spec = protocol_named(task.protocol), task.mechanism
    if spec.name not in protocol.mechanisms:
        stated = f", with {spec.buckets} buckets" if isinstance(spec, MechanismSpec) else ""
        raise TaskError(
            f"the protocol {protocol.name} uses the mechanism {' or '.join(protocol.mechanisms)}; "
            f"the task has {spec.name}{stated}"
        )
    _check_noise(task, protocol)
    _check_dummies(task, protocol)
    _check_shuffler(task, protocol)
    if isinstance(spec, MechanismSpec):
        _check_items(task, spec, protocol)
    else:
        _check_other_kinds(task, spec)


def _check_noise(task: "Task", protocol: Protocol) -> None:
    spec = task.mechanism
    if spec.noiseless and protocol.local_noise == "required":
        raise TaskError(
            f"the protocol {protocol.name} needs local noise; other_weight is 0, "
            "and local_epsilon must be finite"
        )
    if not spec.noiseless and protocol.local_noise == "none":
        raise TaskError(
            f"the protocol {protocol.name} has no local noise; local_epsilon is "
            f"{task.local_epsilon}, and must be infinite"
        )


def _check_dummies(task: "Task", protocol: Protocol) -> None:
    dummies = task.dummies
    if dummies.maximum > 0:
        if not protocol.dummy_distributions:
            raise TaskError(
                f"the protocol {protocol.name} has no dummies; "
                f"the task has up to {dummies.maximum} for each user"
            )
        one_of(
            "the distribution of this protocol's dummies", dummies.law, protocol.dummy_distributions
        )
    if dummies.law == "each-item" and dummies.trials != task.domain_size:
        raise TaskError(
            f"the trials of the dummies are {dummies.trials}; a dummy for each item needs "
            f"domain_size of them, {task.domain_size}"
        )


def _check_shuffler(task: "Task", protocol: Protocol) -> None:
    spec = task.shuffler
    one_of(
        "the distribution of this protocol's shuffler", spec.law, (protocol.shuffler_distribution,)
    )
    if spec.kept < 1 and not protocol.samples:
        raise TaskError(
            f"the protocol {protocol.name} keeps every report; keep_weight is "
            f"{spec.keep_weight}, and must be {KEEP_SUM}"
        )
    expected = math.ceil(task.domain_size * spec.moments()[0])
    within("dummies expected of the shuffler", expected, 0, MAX_SHUFFLER_DUMMIES)
    draws = math.ceil(task.domain_size * spec.draws_per_item)
    within("draws expected of the shuffler", draws, 0, MAX_SHUFFLER_DRAWS)


def _check_items(task: "Task", spec: MechanismSpec, protocol: Protocol) -> None:
    if protocol.domain == "binary" and task.domain_size != 2:  # noqa: PLR2004  # a bit
        raise TaskError(
            f"the protocol {protocol.name} collects a bit; domain_size is {task.domain_size}, "
            "and must be 2"
        )
    if protocol.buckets not in {0, spec.buckets} and spec.name == protocol.mechanism:
        raise TaskError(
            f"the protocol {protocol.name} hashes into {protocol.buckets} buckets; the task "
            f"has {spec.buckets}"
        )
    if protocol.domain == "labelled" and not task.labels:
        raise TaskError(f"the protocol {protocol.name} hashes labels; the task has none")
    plain = spec.name in {"grr", "warner"}
    if plain and (spec.buckets != task.domain_size or spec.digits != 1):
        raise TaskError(
            f"GRR over {task.domain_size} items has {task.domain_size} buckets and 1 digit; "
            f"the task has {spec.buckets} and {spec.digits}"
        )
    if spec.name == "local-hashing" and spec.buckets**spec.digits < task.domain_size:
        raise TaskError(
            f"{spec.digits} digits in base {spec.buckets} cannot tell "
            f"{task.domain_size} items apart"
        )


def _check_texts(labels: Sequence[str], most_bytes: int) -> None:
    """Check that a device can send every label as a text."""
    for item, label in enumerate(labels):
        size = len(label.encode())
        if size > most_bytes:
            raise TaskError(
                f"the label of item {item} has {size} bytes in UTF-8; most_bytes is {most_bytes}, "
                "and nobody could answer it"
            )
        if label != normalised(label):
            raise TaskError(
                f"the label of item {item} is not in Unicode's normal form C, in which devices "
                "send every text: nobody could answer it"
            )


def _check_other_kinds(task: "Task", spec: RapporSpec | NumberSpec | KeyValueSpec) -> None:
    size = task.domain_size
    if isinstance(spec, RapporSpec):
        if spec.encoding == "labels" and (len(task.labels), spec.bits) != (size, size):
            raise TaskError(
                f"the encoding labels needs {size} bits and labels, as many as domain_size; "
                f"the task has {spec.bits} and {len(task.labels)}"
            )
        if spec.encoding == "bloom" and (task.labels or size != 1):
            raise TaskError(
                f"the encoding bloom needs 0 labels and a domain_size of 1; "
                f"the task has {len(task.labels)} and {size}"
            )
        _check_texts(task.labels, spec.most_bytes)
    elif isinstance(spec, NumberSpec):
        if max(spec.sampled, spec.projected) > size:
            raise TaskError(
                f"sampled is {spec.sampled} and projected {spec.projected}; "
                f"a person has {size} numbers"
            )
    elif spec.fakes and len(spec.fakes) != size:
        raise TaskError(f"there are {len(spec.fakes)} fake values and {size} keys")
