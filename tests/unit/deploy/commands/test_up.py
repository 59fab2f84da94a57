"""`shuffledp up`: options that cannot work, and parties that do not answer."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

import pytest

from shuffledp.common import errors
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.certificates import Authority
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.shuffler_spec import GeometricNoise
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients import local_cluster
from shuffledp.deploy.clients.local_cluster import PageCluster, WebHost
from shuffledp.deploy.commands.up import _DRAFT, _ask, _show
from tests.support.chains import chain
from tests.support.command_line import shown
from tests.support.tasks import published


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--host", "poll.example"), "over HTTPS only"),
        (("--host", "poll.example", "--certificate", "a.pem"), "needs --certificate and --key"),
        (("--certificate", "a.pem", "--key", "a.key"), "need --host"),
    ],
)
def test_a_host_needs_a_certificate(options: tuple[str, ...], rule: str) -> None:
    """The sentence says why; nothing is started."""
    with pytest.raises(errors.UsageError, match=rule):
        shown("up", *options)


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """A folder with a certificate of poll.example and *.wild.example."""
    authority = Authority.make(tmp_path, "authority", 1e9)
    authority.issue(tmp_path, "poll", 1e9, ["poll.example", "*.wild.example"])
    return tmp_path


@pytest.mark.parametrize("host", ["poll.example", "a.wild.example"])
def test_a_host_of_the_certificate_passes(certified: Path, host: str) -> None:
    """Also one of a wildcard."""
    WebHost(host, certified / "poll.pem", certified / "poll.key").check()


@pytest.mark.parametrize(
    "host",
    ["other.example", "a.b.wild.example", "192.0.2.1", "https://poll.example", "poll.example:8"],
)
def test_another_host_than_the_certificates_is_refused(certified: Path, host: str) -> None:
    """Browsers would refuse the page; the message names the option."""
    pair = ("--certificate", str(certified / "poll.pem"), "--key", str(certified / "poll.key"))

    with pytest.raises(
        errors.SettingsError, match=rf"--host is {host}; .* without scheme .*poll.example"
    ):
        shown("up", "--host", host, *pair, "--folder", str(certified / "up"))
    assert not (certified / "up").exists()


def test_the_key_of_another_certificate_is_refused(certified: Path) -> None:
    """And a missing file is told from a wrong one."""
    certificate = certified / "poll.pem"

    with pytest.raises(errors.SettingsError, match=r"authority.key is not the key of .*poll.pem"):
        WebHost("poll.example", certificate, certified / "authority.key").check()
    with pytest.raises(errors.SettingsError, match=r"none.key cannot be read: No such file"):
        WebHost("poll.example", certificate, certified / "none.key").check()


def test_the_folder_is_none_of_files(tmp_path: Path) -> None:
    """The message names the option."""
    (tmp_path / "file").touch()

    with pytest.raises(errors.UsageError, match=r"--folder is .*, a file"):
        shown("up", "--folder", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("n_min", "rule"), [("602_325", "`up` invites at most 10,000"), ("=", "bad.toml is not TOML")]
)
def test_a_wrong_draft_leaves_no_folder(n_min: str, rule: str, tmp_path: Path) -> None:
    """It is read before keys and people are made."""
    text = _DRAFT.read_text(encoding="utf-8").replace("n_min = 1 ", f"n_min = {n_min} ")
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")

    with pytest.raises(errors.ShuffleDpError, match=rule):
        shown("up", "--draft", str(tmp_path / "bad.toml"), "--folder", str(tmp_path / "up"))
    assert not (tmp_path / "up").exists()


def test_a_second_up_in_a_folder_is_refused(tmp_path: Path) -> None:
    """The message names the folder and the option."""
    with (
        StateDirectory.open(tmp_path).held(),
        pytest.raises(
            errors.SettingsError,
            match=rf"^`up` already runs in {tmp_path}; stop it, or .* --folder$",
        ),
    ):
        shown("up", "--folder", str(tmp_path))


class _Operator:
    """Gives what it is made with, one for each call, or raises it."""

    def __init__(self, *answers: object) -> None:
        self.answers = iter(answers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""

    async def describe(self, digest: TaskDigest) -> object:
        """Answer once more, with a task of this digest."""
        return _Signed(digest), await self.progress(digest)

    async def progress(self, _digest: TaskDigest) -> object:
        """Answer once more."""
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(frozen=True)
class _Signed:
    """A task that has a digest alone."""

    own: TaskDigest

    def digest(self) -> TaskDigest:
        """Return it."""
        return self.own


@pytest.mark.parametrize(
    ("state", "drafts", "published", "warned"),
    [
        ("open", ["lunch", None], 1, False),
        ("open", ["lunch", "lunch"], 1, False),
        ("open", [None, "lunch"], 2, True),
        ("released", ["lunch", None], 2, False),
    ],
)
async def test_an_open_question_is_continued_or_named(
    tmp_path: Path, state: str, drafts: list[str | None], published: int, *, warned: bool
) -> None:
    """Without a draft any open question goes on; another draft leaves it open, with a warning."""
    cluster: Any = SimpleNamespace(directory=tmp_path, asked=[])
    cluster.operator = lambda: _Operator(SimpleNamespace(state=state))

    async def publish(draft: TaskDraft) -> _Signed:
        cluster.asked.append(draft.title)
        return _Signed(TaskDigest(bytes([len(cluster.asked)] * 32)))

    cluster.publish_task = publish
    text = _DRAFT.read_text(encoding="utf-8")
    (tmp_path / "lunch").write_text(text.replace("Ways to work", "Lunch"), encoding="utf-8")
    for name in drafts:
        asked, warnings = await _ask(cluster, tmp_path / name if name else None)

    assert published == len(cluster.asked) == asked.digest()[0]
    expected = [f"question {'01' * 32} is still open; its invitations are replaced"]
    assert expected * warned == warnings


_GRR: Final = {"protocol": "ldp-grr", "buckets": 0, "dummies_per_user": 0}
_SMALL: Final = GeometricNoise(peak=4, left_weight=2**23, right_weight=2**23, most=8)


@pytest.mark.parametrize(
    ("fields", "for_page"),
    [
        ({**_GRR, "local_epsilon": 4.0}, True),
        ({**_GRR, "local_epsilon": 5.0}, False),
        (chain(), True),
        (chain(second=_SMALL), False),
    ],
)
def test_a_question_that_the_page_refuses_is_answered_by_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], *, for_page: bool
) -> None:
    """The warnings come first, and no invitation is shown that leads nowhere."""
    cluster: Any = SimpleNamespace(
        directory=tmp_path, moved=True, invitations=lambda _: {"Ada": "http://p/"}, addresses=dict
    )
    task = published(**fields, domain_size=3).task
    _show(
        cluster, SignedTask(task_bytes=task.to_bytes(), signature=bytes(64)), ["first"], json=False
    )
    text = capsys.readouterr().out

    assert text.startswith("Warning: first.\nWarning: ")
    assert "earlier answers stay at the old address.\n" in text
    assert for_page == ("To answer as Ada, open\n\n  http://p/\n" in text)
    assert for_page != ("--person Ada\n  shuffledp" in text)


async def test_only_a_task_that_nobody_opened_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shuffler that does not answer is told, and a refusal of another kind ends the watch."""
    unopened, away, refused = (
        errors.PeerRefusalError("NOT_FOUND", "unopened"),
        errors.PeerError("away"),
        errors.PeerRefusalError("UNAUTHENTICATED", "wrong token"),
    )
    operator: Any = _Operator(unopened, away, "progress", refused)
    monkeypatch.setattr(local_cluster, "_WATCH_SECONDS", 0.0)
    monkeypatch.setattr(PageCluster, "shuffler_operator", lambda _: operator)
    monkeypatch.setattr(PageCluster, "check", lambda _: None)
    told: list[str] = []
    watching: Any = PageCluster(tmp_path, ["Ada"]).watch(TaskDigest(bytes(32)), told.append)

    assert "progress" == await anext(watching)
    assert ["away"] == told
    with pytest.raises(errors.PeerRefusalError, match="wrong token"):
        await anext(watching)
