"""The lists of a task: its views, with their dummies, and its shufflers, with their noise."""

from dataclasses import dataclass, field
from typing import Final

from shuffledp.common.errors import TaskError
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import ItemNoise, ReportSampling
from shuffledp.common.task.specs import check_printable

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
