"""Commands that run until a signal."""

import asyncio
import os
import signal
import subprocess
import sys
from typing import Final

import pytest

from deploy.terminal.interruption import until_stopped

_WORKING: Final = """
from common.crypto.hpke_pool import worker_pool
from deploy.terminal.interruption import ended_by_interrupt
with ended_by_interrupt(), worker_pool(1) as pool:
    print(pool.submit(int).result(), flush=True)
    __import__("time").sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_terminated_cleans_up(number: signal.Signals) -> None:
    """Otherwise the resource tracker warns of the workers' semaphores, and services stay."""
    asked = (sys.executable, "-c", _WORKING)
    with subprocess.Popen(asked, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert "0\n" == process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=30)

    assert said.endswith("KeyboardInterrupt\n")
    assert "leaked" not in said


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
