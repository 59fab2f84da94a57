"""The lists of a task: its views, with their dummies, and its shufflers, with their noise."""

from dataclasses import dataclass
from typing import Annotated, Final

from common.errors import TaskError
from common.task.dummy_forms import AnyDummies
from common.task.named_dummies import LevelDummies
from common.task.shuffler_spec import KEEP_SUM, ItemNoise
from common.task.specs import check_fields, check_printable, whole

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
        if isinstance(self.dummies, LevelDummies):
            raise TaskError("a view's dummies are levels; each level is a view of its own")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShuffler:
    """A shuffler of a task: its key, and what it drops and adds."""

    key: bytes
    noise: tuple[ItemNoise, ...]
    """Distribution of the number of its dummies of each item, for each view."""
    name: str = ""
    proof: bytes = b""
    """The shuffler's signature of the key; see `common.crypto.signing`. Without it, no device
    answers."""
    keep_weight: Annotated[int, whole(1, KEEP_SUM)] = KEEP_SUM
    """Numerator of the probability that a report is kept; the denominator is KEEP_SUM."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_printable("the shuffler's name", self.name, _MAX_NAME)
