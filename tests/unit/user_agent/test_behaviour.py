import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from common.errors import PeerError
from tests.support.devices import agent_of
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import published

_CASE: Final = published()
_DIGEST: Final = _CASE.signed.digest()
_PERSON: Final = "Zacharias Quandt"

_written: list[str] | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Record files opened for writing. An audit hook cannot be removed, only disabled."""
    if _written is not None and event == "open" and isinstance(arguments[0], str | bytes):
        mode, flags = arguments[1] or "", arguments[2]
        if set(mode) & set("wax+") or flags & 3:
            _written.append(str(arguments[0]))


sys.addaudithook(_hear)


@contextmanager
def _writes() -> Iterator[list[str]]:
    """Yield the names of files that are opened for writing while a block runs."""
    global _written  # noqa: PLW0603  # there is one hook a process
    heard: list[str] = []
    _written = heard
    try:
        yield heard
    finally:
        _written = None


async def _answered(
    path: Path, value: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[object, ...], list[str]]:
    """Answer on a new device while offline, resend, and answer again."""
    shuffler, pauses, pause = MemoryShuffler(_CASE.signed), list[float](), asyncio.sleep

    async def noted(seconds: float, *more: Any) -> Any:
        pauses.append(seconds)
        return await pause(0, *more)

    agent = agent_of(path, _CASE, shuffler, several_persons=True)
    with monkeypatch.context() as patch, _writes() as writes:
        patch.setattr(asyncio, "sleep", noted)
        shuffler.reachable = False
        with suppress(PeerError):
            await agent.contribute(_DIGEST, value, _PERSON)
        await agent.resend_pending()
        shuffler.reachable = True
        await agent.resend_pending()
        await agent.contribute(_DIGEST, value, _PERSON)
    agent.budget.close()
    names = tuple(sorted(file.name for file in path.iterdir()))
    return (shuffler.fetched, list(map(len, shuffler.received)), names, pauses), writes


async def test_a_device_behaves_alike_whatever_its_value(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its calls, pauses, logs and files; it writes only to its budget."""
    caplog.set_level(logging.DEBUG)
    seen, lines = list[object](), list[object]()
    for value in (0, 1, 2, 50, 98, 99):
        folder = tmp_path / str(value)
        folder.mkdir()
        caplog.clear()
        done, writes = await _answered(folder, value, monkeypatch)
        seen.append(done)
        lines.append([(record.msg, getattr(record, "fields", {})) for record in caplog.records])
        assert [] == [name for name in writes if "budget.sqlite" not in name]
        assert _PERSON not in caplog.text

    assert [seen[0]] * len(seen) == seen
    assert [lines[0]] * len(lines) == lines
    assert ("", "") == capsys.readouterr()
