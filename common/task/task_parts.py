"""
The lists of a task: its views, with their dummies, and its shufflers, with their noise.

Two shufflers each permute and add noise. Permuting twice would not hide a user from the analyzer
and one of them together, who can drop or replace everybody else. Noise that each adds needs nobody
else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shuffledp.common.crypto.signing import PROOF_BYTES, end_of_validity
from shuffledp.common.dates import utc
from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import PROTOCOLS, ProtocolRow
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import KEEP_SUM, NOISES, ItemNoise, ReportSampling
from shuffledp.common.task.specs import check_printable

_NAMES: Final = ("shuffler", "relay")
MAX_SHUFFLERS: Final = len(_NAMES)
_MAX_NAME: Final = 64
"""Maximum characters of a shuffler's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One histogram to which every user reports, among dummies of its own."""

    domain_size: int
    """Number of items; of a vector's components or of keys; 1 for a single number and for texts
    without labels."""
    dummies: AnyDummies

    def __post_init__(self) -> None:
        if isinstance(self.dummies, ViewDummies):
            raise TaskError("a view's dummies must not have the distribution views")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShuffler(ReportSampling):
    """A shuffler of a task: its key, and what it drops and adds."""

    key: bytes
    noises: tuple[ItemNoise, ...] = field(metadata={"key": "noise"})
    """Distribution of the number of its dummies of each item, for each view."""
    name: str = ""
    proof: bytes = b""
    """The shuffler's signature of the key; see `shuffledp.common.crypto.signing`. Without it, no
    device answers."""

    def __post_init__(self) -> None:
        super(TaskShuffler, self).__post_init__()  # slots=True made another class
        check_printable("the shuffler's name", self.name, _MAX_NAME)


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
    if len(shufflers) == 1:
        return
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
    for noun in ("name", "key"):
        if len({getattr(each, noun) for each in shufflers} - {"", b""}) != len(shufflers):
            raise TaskError(f"two shufflers must have a {noun} each, and not the same")


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
