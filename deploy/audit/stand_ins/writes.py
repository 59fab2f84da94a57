"""Files and connections that are heard of while something runs."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.audit.stand_ins.small_device import BUDGET_FILE


class Writes:
    """
    What this process opens for writing, or connects to, while a block runs.

    Python tells its hooks of every file that Python code opens. SQLite opens its own by itself;
    Python tells of the connection.
    """

    def __enter__(self) -> Self:
        self._seen: list[str] = []
        _install()
        _LISTENING.append(self._seen)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _LISTENING.remove(self._seen)

    def elsewhere(self, folder: Path) -> list[str]:
        """List what was opened and is not the device's budget in its folder."""
        budget = str(folder / BUDGET_FILE)
        return [name for name in self._seen if name != budget]


_LISTENING: Final[list[list[str]]] = []
_INSTALLED: Final[list[bool]] = []
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_OTHERS: Final = frozenset(
    {"sqlite3.connect", "socket.connect", "socket.sendto", "subprocess.Popen", "os.system"}
)


def _install() -> None:
    """Add the hook, once: it can never be taken away, and hears nothing while nobody listens."""
    if not _INSTALLED:
        _INSTALLED.append(True)
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if not _LISTENING:
        return
    if event == "open":
        path, _, flags = arguments
        if not (isinstance(flags, int) and flags & _WRITING):
            return
    elif event in _OTHERS:
        path = arguments[0]
    else:
        return
    for seen in _LISTENING:
        seen.append(str(path))
