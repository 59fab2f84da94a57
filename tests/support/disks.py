"""Full disks, and the order of flushes."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Limit the size of every file that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def flushes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    """Record the inode and size of each flushed or renamed file."""
    seen: list[tuple[str, int, int]] = []
    fsync, replace = os.fsync, Path.replace

    def flushed(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        seen.append(("flush", status.st_ino, status.st_size))

    def renamed(self: Path, target: Path) -> Path:
        status = self.stat()
        seen.append(("rename", status.st_ino, status.st_size))
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", flushed)
        patch.setattr(Path, "replace", renamed)
        yield seen
