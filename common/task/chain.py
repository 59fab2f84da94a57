"""
The rules of a task's shufflers: one, or a chain of two that each permute and add noise.

Permuting twice would not hide a user from the analyzer and one of them together, who can drop or
replace everybody else. Noise that each adds needs nobody else.
"""

from collections.abc import Sequence
from typing import Final

from shuffledp.common.crypto.signing import PROOF_BYTES, end_of_validity
from shuffledp.common.dates import utc
from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import PROTOCOLS, ProtocolRow
from shuffledp.common.task.shuffler_spec import KEEP_SUM, NOISES
from shuffledp.common.task.task_parts import TaskShuffler

_NAMES: Final = ("shuffler", "relay")
MAX_SHUFFLERS: Final = len(_NAMES)


def check_shufflers(protocol: ProtocolRow, shufflers: Sequence[TaskShuffler], views: int) -> None:
    """Raise TaskError unless the shufflers are as many and as alike as the protocol allows."""
    if len(shufflers) not in {1, MAX_SHUFFLERS}:
        raise TaskError(
            f"the task lists {len(shufflers)} shufflers; this version supports only tasks with one "
            "or two"
        )
    for name, each in zip(_NAMES, shufflers, strict=False):
        if len(each.noises) != views:
            raise TaskError(
                f"the {name} has {len(each.noises)} distributions of noise; it must have one "
                f"for each of the {views} views"
            )
    if len(shufflers) > 1:
        _check_chain(protocol, shufflers)


def _check_chain(protocol: ProtocolRow, shufflers: Sequence[TaskShuffler]) -> None:
    if not protocol.chained:
        chained = " or ".join(name for name, row in PROTOCOLS.items() if row.chained)
        raise TaskError(
            f"the protocol {protocol.name} hides a user among others, whom one shuffler can drop "
            "or replace, so that a second one which permutes again protects nobody; two shufflers "
            f"need a protocol with which each adds noise that hides a user alone: {chained}"
        )
    for name, each in zip(_NAMES, shufflers, strict=True):
        own = {type(noise) for noise in each.noises} == {NOISES[protocol.shuffler_distribution]}
        if not own or each.keep_weight != KEEP_SUM:
            raise TaskError(
                f"with two shufflers, the {name} too must add dummies of the distribution "
                f"{protocol.shuffler_distribution} and keep every report (keep_weight {KEEP_SUM})"
            )
    for field in ("name", "key"):
        if len({getattr(each, field) for each in shufflers} - {"", b""}) != len(shufflers):
            raise TaskError(f"two shufflers must have a {field} each, and not the same")


def check_keys(shufflers: Sequence[TaskShuffler], key_bytes: int, deadline: int) -> None:
    """Raise TaskError for a key of another length, or that its shuffler signed for less time."""
    for name, each in zip(_NAMES, shufflers, strict=False):
        if len(each.key) != key_bytes:
            raise TaskError(f"the {name}'s key has {len(each.key)} bytes; it must have {key_bytes}")
        if len(each.proof) not in {0, PROOF_BYTES}:
            raise TaskError(
                f"the proof of the {name}'s key has {len(each.proof)} bytes; it must have "
                f"{PROOF_BYTES}, or none"
            )
        if each.proof and deadline > (end := end_of_validity(each.proof)):
            why = ", five years after the key's last day" * (each is shufflers[0])
            raise TaskError(
                f"deadline is {utc(deadline)}; the {name} signed its key until {utc(end)}{why}"
            )
