"""Commands that run until a signal."""

import asyncio
import os
import signal
import subprocess
import sys
from typing import Final

import pytest

from shuffledp.deploy.terminal.interruption import until_stopped

_WORKING: Final = """
import os, signal
from shuffledp.common.crypto.hpke_pool import worker_pool
from shuffledp.deploy.terminal.interruption import ended_by_interrupt
with ended_by_interrupt(), worker_pool(1):
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_command_that_is_terminated_cleans_up() -> None:
    """Otherwise the resource tracker warns of the workers' semaphores, and services stay."""
    process = subprocess.run((sys.executable, "-c", _WORKING), capture_output=True, check=False)

    assert process.stderr.endswith(b"KeyboardInterrupt\n")
    assert b"leaked" not in process.stderr


async def test_work_is_cancelled_by_the_first_signal_and_cleans_up_in_peace() -> None:
    """A second signal does not disturb it."""
    done = list[str]()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.01)
            done.append("cleaned up")

    await until_stopped(work())

    assert ["cleaned up"] == done


async def test_the_work_s_error_is_raised() -> None:
    """As if it had been awaited."""

    async def work() -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await until_stopped(work())


async def test_an_ignored_signal_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        await until_stopped(asyncio.sleep(0))
        assert signal.SIG_IGN is signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
