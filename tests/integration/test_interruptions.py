"""Ctrl-C ends every command soon and quietly, with its processes and the status 130."""

import os
import pty
import runpy
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import psutil
import pytest

from shuffledp.protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc
from tests.support.command_line import run_command

_ROOT: Final = Path(__file__).parents[2]
_COMMAND: Final = (sys.executable, "-c", "from shuffledp.deploy.cli import main; main()")
_BUSY_SECONDS: Final = 2.0
"""Processor time after which a command, with its workers, is at work."""
_PATIENCE: Final = 120.0
_SOON: Final = 10.0
"""Two seconds are promised; machines that run tests are busy."""
_DIGEST: Final = "00" * 32
_SLOW: Final = ("--central-epsilon", "0.05", "--local-cap", "none", "--trust", "shuffler-dummies")
_LONG: Final = {
    "audit": ["audit", "--quick", "--output", "a.json", "--html", "a.html"],
    "simulate": ["simulate", "--task-kind", "vector", "--repeat", "100000"],
    "reproduce": ["reproduce", "projection"],
    "plan": ["plan", "--domain-size", "4000", "--users", "100000000", "--rounds", "1000", *_SLOW],
    "load": ["load", "local", "--users", "100000"],
}


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _wait_until_busy(process: psutil.Process) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        times = [each.cpu_times() for each in _family(process)]
        if sum(each.user + each.system for each in times) > _BUSY_SECONDS:
            return
        time.sleep(0.1)
    pytest.fail("the command does nothing")


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [False, True], ids=["parent", "group"])
@pytest.mark.parametrize("name", _LONG)
def test_a_command_at_work_ends_with_all_its_processes(
    tmp_path: Path, name: str, *, whole_group: bool
) -> None:
    """A terminal signals all processes, `kill` only the first; neither leaves one, or a word."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(
        [*_COMMAND, *_LONG[name]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=tmp_path,
        env=environment,
        text=True,
    ) as command:
        process = psutil.Process(command.pid)
        _wait_until_busy(process)
        family = _family(process)
        (os.killpg if whole_group else os.kill)(command.pid, signal.SIGINT)
        _, complaint = command.communicate(timeout=_SOON)

    assert 130 == command.returncode
    assert "Traceback" not in complaint
    assert [] == psutil.wait_procs(family, timeout=_SOON)[1]


class _Asking(user_agent_pb2_grpc.UserAgentServicer):
    """A user agent that states any task's question."""

    def GetQuestion(self, request: object, context: object) -> user_agent_pb2.GetQuestionResponse:  # noqa: N802  # gRPC's name
        del request, context
        return user_agent_pb2.GetQuestionResponse(texts={"title": "Tea or coffee"})


def test_the_prompt_for_a_value_ends_too(tmp_path: Path) -> None:
    """At a terminal, also while the value is hidden."""
    agent, server = f"unix:{tmp_path}/agent", grpc.server(ThreadPoolExecutor(1))
    user_agent_pb2_grpc.add_UserAgentServicer_to_server(_Asking(), server)  # type: ignore[abstract]  # it asks only
    server.add_insecure_port(agent)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(_ROOT)
        os.execv(sys.executable, [*_COMMAND, "contribute", _DIGEST, f"--address=agent={agent}"])  # noqa: S606  # of this program
    server.start()
    shown = b""
    try:
        while b"Your value" not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, b"\x03")
        _, status = os.waitpid(child, 0)
    finally:
        os.close(terminal)
        server.stop(None)

    assert b"Tea or coffee" in shown
    assert 130 == os.waitstatus_to_exitcode(status)
    assert b"Aborted" not in shown


def test_importing_the_entry_point_changes_no_handler() -> None:
    """A program that imports it in its own process keeps its KeyboardInterrupt."""
    handler = signal.getsignal(signal.SIGINT)
    runpy.run_module("shuffledp.deploy.terminal.start")

    assert handler == signal.getsignal(signal.SIGINT)


@pytest.mark.parametrize(
    "loaded", ["typer.colors", "typer.main", "shuffledp.deploy.terminal.interruption"]
)
def test_a_command_that_is_still_loading_ends_without_a_traceback(loaded: str) -> None:
    """Python names each module that it has loaded; the signal follows one of them."""
    program = "from shuffledp.deploy.terminal.start import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", program, "result", _DIGEST]
    with subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(line.split("|")[-1].strip() == loaded for line in process.stderr)
        process.send_signal(signal.SIGINT)
        complaint = process.stderr.read()

    assert process.returncode in {-signal.SIGINT, 130}
    assert "Traceback" not in complaint


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["plan"], 2),
        (["plan", "--users", "0", "--domain-size", "5", "--central-epsilon", "1"], 2),
        (["account", "--mechanism", "grrr"], 2),
        (["audit", "--quick", "--full"], 2),
        (["task", "show", "12", "--address=analyzer=127.0.0.1:1", "--token-file", "none"], 2),
        (["result", _DIGEST, "--address=analyzer=127.0.0.1:1", "--token-file", "none"], 1),
    ],
)
async def test_wrong_options_have_a_status_of_their_own(arguments: list[str], status: int) -> None:
    """2 for wrong options, 1 for other failures."""
    found, _, complaint = await run_command(*arguments)

    assert status == found
    assert "Traceback" not in complaint
