"""Disks that are full, and what is written to them when."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let no file that this process writes grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def flushes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    """Note each flush with its file's number and size, and each renaming with its source's."""
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
