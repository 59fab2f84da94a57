"""`shuffledp up`, and the demo at a terminal, as processes."""

import base64
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import Request, urlopen

import psutil
import pytest

from shuffledp.common.messages.batch import BatchState, TaskState
from shuffledp.deploy.commands.up import _progress

_COMMAND: Final = [sys.executable, "-c", "from shuffledp.deploy.terminal.start import main; main()"]
_ROOT: Final = Path(__file__).parents[2]
_COMMUTE: Final = _ROOT / "deploy" / "drafts" / "commute.toml"
_SECONDS: Final = 60


def _shuffledp(*words: str, text: str = "", profile: str = "") -> str:
    options = ["--profile", profile] if profile else []
    command = [*_COMMAND, *options, *words]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, cwd=_ROOT
    ).stdout


def test_up_says_when_the_result_is_released() -> None:
    """The shuffler's batch is erased then, which would tell an operator nothing."""
    assert "Answers: 2. The batch is closed." == _progress(2, BatchState.CLOSED, TaskState.OPEN)
    assert "Answers: 2. The result is released." == _progress(
        2, BatchState.ERASED, TaskState.RELEASED
    )


@contextmanager
def _up(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run the command until it has printed its addresses; its children end with it."""
    with subprocess.Popen(
        [*_COMMAND, "up", "--json", "--people", "3", "--folder", str(folder), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    ) as process:
        assert process.stdout is not None
        shown = ""
        while not shown.endswith("}\n"):
            shown += process.stdout.readline()
        children = psutil.Process(process.pid).children(recursive=True)
        try:
            yield process, json.loads(shown)
        finally:
            process.terminate()
        assert [] == psutil.wait_procs(children, timeout=_SECONDS)[1]


@pytest.mark.slow
def test_up_serves_one_question_and_continues_in_its_folder(tmp_path: Path) -> None:
    """A second start has the same keys, people, question and addresses; a dead child is named."""
    folder = tmp_path / "u"
    draft = tmp_path / "lunch.toml"
    lunch = _COMMUTE.read_text(encoding="utf-8").replace("Ways to work", "Lunch")
    draft.write_text(lunch, encoding="utf-8")
    with _up(folder, "--draft", str(draft)) as (process, first):
        digest, page = first["task_digest"], first["publisher_url"]
        encoded = base64.b64encode(bytes.fromhex(digest)).decode()
        task = _get(
            f"{first['shuffler_url']}/shuffledp.v1.Shuffler/FetchTask",
            data=json.dumps({"taskDigest": encoded}).encode(),
            headers={"content-type": "application/json", "origin": page},
        )
        assert page == task.headers["access-control-allow-origin"]
        policy = _get(page).headers["content-security-policy"]
        assert f"connect-src {first['shuffler_url']} {first['issuer_url']};" in policy
        pins = json.loads((folder / "pins.json").read_text(encoding="utf-8"))
        assert [first["shuffler_url"], 2, 2] == [
            pins["shuffler"],
            pins["witness_quorum"],
            len(pins["witnesses"]),
        ]
        pinned = (folder / "analyzer" / "identity.pub").read_text(encoding="utf-8")
        assert pinned.strip() == pins["analyzer_identity"]
        said = _shuffledp(
            "contribute", digest, "--person", "person-2", text="car\n", profile=first["profile"]
        )
        assert "Contributed" in said
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(_SECONDS)
    invited = (folder / "invitations.txt").read_text(encoding="utf-8").splitlines()
    assert f"person-1 {first['invitation']}" == invited[0]
    assert 0o600 == (folder / "invitations.txt").stat().st_mode & 0o777
    assert 3 == len(invited)
    assert "*" == (folder / ".gitignore").read_text(encoding="utf-8").strip()

    with _up(folder) as (process, second):
        assert first == second | {"analyzer": first["analyzer"]}
        _shuffledp("task", "close", digest, profile=first["profile"])
        shown = _released(digest, first["profile"])
        assert 1 == json.loads(shown)["n_users"]
        [shuffler] = [
            child
            for child in psutil.Process(process.pid).children()
            if "shuffledp.shuffler" in child.cmdline()
        ]
        shuffler.kill()
        assert 1 == process.wait(_SECONDS)
        assert process.stderr is not None
        assert "the shuffler has ended by SIGKILL; see" in process.stderr.read()


def _released(digest: str, profile: str) -> str:
    """Return a result as JSON as soon as it is released, some moments after its batch closed."""
    for _ in range(_SECONDS):
        with suppress(subprocess.CalledProcessError):
            return _shuffledp("result", digest, "--json", profile=profile)
        time.sleep(1.0)
    return pytest.fail("the result was not released")


def _get(url: str, **request: Any) -> Any:
    """Return the answer of one of our own servers."""
    with urlopen(Request(url, **request), timeout=_SECONDS) as answer:  # noqa: S310
        return answer


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a folder in which a demo's sockets have names that are short enough."""
    with TemporaryDirectory(prefix="d-") as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_visited", "more"), [(True, []), (False, []), (True, ["--two-shufflers"])]
)
def test_at_a_terminal_a_visitor_is_counted(
    short_path: Path, more: list[str], *, is_visited: bool
) -> None:
    """The second batch is released with the visitor alone; Ctrl-C ends with status 0."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TMPDIR": str(short_path), "PYTHONPATH": str(_ROOT)}
        os.chdir(short_path)
        words = ["demo", "--users", "20", *more]
        os.execv(sys.executable, [*_COMMAND, *words])  # noqa: S606  # of this program
    shown = _until(terminal, "nothing is released")
    if is_visited:
        [digest] = re.findall("#task=([0-9a-f]+)&", shown)
        [folder] = short_path.glob("shuffledp-demo-*")
        agent = f"unix:{folder}/user_agent.sock"
        _shuffledp(
            "contribute", digest, "--person", "visitor", f"--address=agent={agent}", text="Texas\n"
        )
        shown = _until(terminal, ", or at Ctrl-C.")
        assert re.search(r"has arrived\. The batch closes at \d\d:\d\d,", shown)
    os.write(terminal, b"\x03")
    if is_visited:
        shown = _until(terminal, "Ctrl-C ends.")
        assert f"{(short_path / 'result-with-you.html').as_uri()}" in shown
        os.write(terminal, b"\x03")
    _until(terminal, "\0")
    _, status = os.waitpid(child, 0)

    assert 0 == os.waitstatus_to_exitcode(status)
    written = {file.name for file in short_path.iterdir()}
    again = {"result-with-you.json", "result-with-you.html"} if is_visited else set()
    assert {"result.json", "result.html"} | again == written
    if is_visited:
        result = json.loads((short_path / "result-with-you.json").read_text(encoding="utf-8"))
        assert 21 == result["n_users"]
        assert bool(more) == ("coalition_epsilon" in result)


@pytest.mark.slow
def test_a_kind_that_the_page_does_not_know_ends_with_the_result(tmp_path: Path) -> None:
    """At a terminal too, with a sentence that says so."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PYTHONPATH"] = str(_ROOT)
        os.chdir(tmp_path)
        words = ["demo", "--task-kind", "mean", "--users", "20"]
        os.execv(sys.executable, [*_COMMAND, *words])  # noqa: S606  # of this program
    shown = _until(terminal, "\0")
    _, status = os.waitpid(child, 0)

    assert 0 == os.waitstatus_to_exitcode(status)
    assert "no question of the kind mean yet" in " ".join(shown.split())


def _until(terminal: int, text: str) -> str:
    """Return what a terminal shows until a text, or until its end."""
    shown = ""
    while text not in shown:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the program has ended
            read = b""
        if not read:
            break
        shown += read.decode(errors="replace")
    return shown
