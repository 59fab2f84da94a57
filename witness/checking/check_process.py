"""
The process in which a checking witness parses one task and recomputes its claims.

Run as `python -m shuffledp.witness.checking.check_process` with the task's bytes as its input. It
prints why the task is refused, and nothing if it is not.
"""

import resource
import sys
from typing import Final

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.accounting import claims
from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.task.task import Task
from shuffledp.witness.checking.task_checks import OUT_OF_MEMORY

_MEMORY: Final = 1 << 30
"""Maximum address space in bytes, beyond which the process fails: three times what the dearest
valid task needs, most of it for libraries."""
_MAX_CHARACTERS: Final = 1000


def refusal(task_bytes: bytes) -> str:
    """Return the rule that a task breaks; empty if it breaks none. Cost: see `delta_at_claim`."""
    try:
        task = Task.from_bytes(task_bytes)
        claims.check_local_claim(task)
        claims.check_central_claim(task)
        claims.check_coalition_claim(task)
    except ShuffleDpError as error:
        return str(error)[:_MAX_CHARACTERS]
    return ""


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        sys.stdout.buffer.write(refusal(sys.stdin.buffer.read()).encode())
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
