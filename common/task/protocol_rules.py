"""The rules that a task's mechanism, dummies and shuffler must meet for its protocol."""

from collections.abc import Sequence
from typing import Final

from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import Kind, ProtocolRow
from shuffledp.common.task.dummies import Dummies
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.shuffler_spec import KEEP_SUM
from shuffledp.common.task.shuffling import Shuffling
from shuffledp.common.task.spec_forms import AnySpec
from shuffledp.common.task.specs import check_choice, check_int_range
from shuffledp.common.task.uniform_dummies import NO_DUMMIES

MAX_SHUFFLER_DUMMIES: Final = 10**9
"""Maximum expected number of shuffler dummies in one batch."""
MAX_SHUFFLER_DRAWS: Final = 10**10
"""Maximum expected number of draws for one batch's shuffler dummies; this many take minutes."""
_MAX_MOST: Final = 2**25
"""Bound on the work of a device that computes the moments of every distribution of noise."""


def check_domain_size(domain_size: int, kind: Kind = "categorical") -> None:
    """Raise TaskError unless a kind of task may have this many items, numbers or keys."""
    check_int_range("domain_size", domain_size, *KINDS[kind].sizes)


def check_protocol_rules(
    protocol: ProtocolRow,
    spec: AnySpec,
    dummies: Dummies,
    shuffler: Shuffling,
    *,
    domain_size: int,
    labels: Sequence[str],
) -> None:
    """Raise TaskError unless the mechanism, dummies and shuffler match a task's protocol."""
    if spec.name not in protocol.mechanisms:
        stated = f", with {spec.item_buckets} buckets" if spec.item_buckets else ""
        raise TaskError(
            f"the protocol {protocol.name} uses the mechanism {' or '.join(protocol.mechanisms)}; "
            f"the task has {spec.name}{stated}"
        )
    if spec.noiseless and protocol.local_noise == "required":
        raise TaskError(
            f"the protocol {protocol.name} needs local noise: local_epsilon must be finite, and "
            "other_weight above 0"
        )
    if protocol.noiseless and not spec.noiseless:
        raise TaskError(
            f"the protocol {protocol.name} has no local noise: local_epsilon must be inf, and "
            "other_weight 0"
        )
    _check_dummies(protocol, dummies, domain_size)
    _check_shuffler(protocol, shuffler)
    _check_domain(protocol, spec, domain_size, labels)
    spec.check_values(domain_size, labels)


def _check_dummies(protocol: ProtocolRow, dummies: Dummies, domain_size: int) -> None:
    if protocol.dummy_distributions:
        check_choice(
            "the distribution of this protocol's dummies",
            dummies.distribution,
            protocol.dummy_distributions,
        )
    elif {*dummies.views} != {NO_DUMMIES}:
        raise TaskError(
            f"the protocol {protocol.name} has no dummies; the task has up to {dummies.maximum} "
            f"for each user, of the distribution {dummies.distribution}"
        )
    dummies.check_domain_size(domain_size)


def _check_shuffler(protocol: ProtocolRow, shuffled: Shuffling) -> None:
    for noise in shuffled.noises:
        check_choice(
            "the distribution of this protocol's shuffler",
            noise.distribution,
            (protocol.shuffler_distribution,),
        )
    if shuffled.keep_probability < 1 and not protocol.samples:
        raise TaskError(
            f"the protocol {protocol.name} keeps every report; keep_weight is "
            f"{shuffled.keep_weight}, and must be {KEEP_SUM}"
        )
    different = sum(noise.most for noise in {*shuffled.noises})
    check_int_range("the sum of `most` over different noises", different, 0, _MAX_MOST)
    for name, number, most in (
        ("dummies", shuffled.expected_dummies, MAX_SHUFFLER_DUMMIES),
        ("draws", shuffled.expected_draws, MAX_SHUFFLER_DRAWS),
    ):
        check_int_range(f"the shuffler's expected {name}", number, 0, most)


def _check_domain(
    protocol: ProtocolRow, spec: AnySpec, domain_size: int, labels: Sequence[str]
) -> None:
    if protocol.domain == "binary" and domain_size != 2:  # noqa: PLR2004  # a bit has two values
        raise TaskError(
            f"the protocol {protocol.name} collects a bit; domain_size is {domain_size}, "
            "and must be 2"
        )
    if protocol.buckets not in {0, spec.item_buckets} and spec.name == protocol.mechanism:
        raise TaskError(
            f"the protocol {protocol.name} hashes into {protocol.buckets} buckets; the task "
            f"has {spec.item_buckets}"
        )
    if protocol.domain == "labelled" and not labels:
        raise TaskError(f"the protocol {protocol.name} hashes labels; the task has none")
