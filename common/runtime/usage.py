"""Processor time and memory of a process and the worker processes that it started."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_CONTAINER_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was taken, at one moment."""

    cpu_seconds: float
    """Of all workers there ever were. May be short of what was read before by what a worker took
    that ended in between: whoever counts it does not let it fall."""
    resident_bytes: int


def measure(pid: int | None = None) -> Usage:
    """
    Measure a process of this machine and its workers.

    Args:
        pid: Its number; None for this very process.

    Raises:
        psutil.Error: It has ended.

    Cost: reads the table of processes, some milliseconds: not for the event loop.
    """
    own = psutil.Process(pid)
    # First: a worker that ends after this is missed once; the other way round it would count twice,
    # since the system adds an ended one to its parent.
    cpu = _cpu_seconds(own)
    resident = own.memory_info().rss
    for worker in own.children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            cpu += _cpu_seconds(worker)
            resident += worker.memory_info().rss
    return Usage(cpu_seconds=cpu, resident_bytes=resident)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def memory_limit(container_limit: Path = _CONTAINER_LIMIT) -> int:
    """Give how much memory there is: the machine's, or the container's if that is less."""
    machine = psutil.virtual_memory().total
    try:
        container = container_limit.read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(container)) if container.isdecimal() else machine
