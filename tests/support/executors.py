"""An executor for tests of stages."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from common.runtime.executor import Job

J = TypeVar("J", bound=Job)
T = TypeVar("T")


class InlineExecutor:
    """Runs parts in the caller's thread."""

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        """Run a stage for each part, in order."""
        return [stage(job, part) for part in parts]

    async def forget_keys(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""
