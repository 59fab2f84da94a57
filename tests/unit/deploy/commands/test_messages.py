"""Messages name the setting, option or command that helps."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from shuffledp.common.errors import PeerRefusalError, SettingsError, UsageError
from shuffledp.common.runtime.admission_interceptor import SERVICE_ERROR
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.cli import app
from shuffledp.deploy.clients.base import read_token
from shuffledp.deploy.clients.user_agent import ask_for_question, send
from shuffledp.deploy.commands.options import page_beside
from shuffledp.deploy.commands.person import (
    describe_contribution,
    describe_texts,
    hops_of,
    show_receipt,
)
from shuffledp.protos.shuffledp.v1 import user_agent_pb2
from shuffledp.user_agent.settings import UserAgentSettings
from tests.support.command_line import run_command, shown
from tests.support.printing import printed


@asynccontextmanager
async def _agent(folder: Path, call: str, answer: Any) -> AsyncIterator[str]:
    """Serve one call of an agent; a status with words is a refusal."""

    async def refuse(_request: object, context: Any) -> None:
        await context.abort(*answer, SERVICE_ERROR)

    server, handler = grpc.aio.server(), answer if callable(answer) else refuse
    calls: dict[str, Any] = {call: grpc.unary_unary_rpc_method_handler(handler)}
    service = grpc.method_handlers_generic_handler("shuffledp.v1.UserAgent", calls)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{folder}/agent")
    await server.start()
    yield f"unix:{folder}/agent"
    await server.stop(None)


async def test_a_missing_token_is_answered_with_its_setting_and_the_spent_epsilon(
    tmp_path: Path,
) -> None:
    """The message also says that the answer is kept."""
    refusal = grpc.StatusCode.UNAUTHENTICATED, "a token is asked for"
    async with _agent(tmp_path, "Contribute", refusal) as address:
        with pytest.raises(PeerRefusalError) as caught:
            await send(address, TaskDigest(bytes(32)), 1, "")

    assert "UNAUTHENTICATED" == caught.value.status
    setting = UserAgentSettings.__dataclass_fields__["credential_file"].name
    for part in ("a token is asked for", f"setting {setting}", "saved the answer", "its epsilon"):
        assert part in str(caught.value)


async def test_a_person_who_has_answered_elsewhere_is_told_so(tmp_path: Path) -> None:
    """The issuer's conflict is about tokens, of which people know nothing."""
    refusal = grpc.StatusCode.ALREADY_EXISTS, "already has a token"
    async with _agent(tmp_path, "Contribute", refusal) as address:
        with pytest.raises(PeerRefusalError, match=r"^This person has .* already has a token$"):
            await send(address, TaskDigest(bytes(32)), 1, "")


async def test_texts_come_in_the_order_of_the_task(tmp_path: Path) -> None:
    """The wire's map has no order; texts of a later version come last."""
    texts = {"added": "x", "series": "", "purpose": "care", "prompt": "Ill?", "title": "Flu"}

    async def state(_request: object, _context: object) -> bytes:
        return user_agent_pb2.GetQuestionResponse(texts=texts).SerializeToString()

    async with _agent(tmp_path, "GetQuestion", state) as address:
        found = await ask_for_question(address, TaskDigest(bytes(32)))

    assert ["title", "prompt", "purpose", "series", "added"] == list(found)
    assert texts == found


@pytest.mark.parametrize(
    ("repeated", "sent", "words"),
    [
        (False, True, "This spends a local epsilon of 4. Check later with shuffledp receipt 00"),
        (True, True, "The earlier answer had not arrived and has now been sent."),
        (True, False, "The earlier answer has arrived."),
    ],
)
def test_a_contribution_is_described(*, repeated: bool, sent: bool, words: str) -> None:
    """The answer is new, sent now, or arrived earlier."""
    reply = user_agent_pb2.ContributeResponse(repeated=repeated, local_epsilon=4.0, sent=sent)

    assert describe_contribution(reply, "shuffledp receipt 00").endswith(words)


def test_with_two_shufflers_a_contribution_says_what_has_no_bound() -> None:
    """The coalition ε is spent, not the local one."""
    reply = user_agent_pb2.ContributeResponse(local_epsilon=math.inf, coalition_epsilon=1.2)

    spent = (
        "a coalition epsilon of 1.2; against both shufflers with the analyzer there is no bound."
    )
    assert spent in describe_contribution(reply, "shuffledp receipt 00")


@pytest.mark.parametrize(
    ("signer", "inclusion", "words"),
    [
        ("analyzer", "counted", "The analyzer signed for all reports"),
        ("relay", "counted", "Checked: your answer reached the second shuffler, which signed"),
        ("relay", "counted", "Only sampled, by test submissions: that the analyzer got them"),
        ("relay", "counted", "Proof: reached the second shuffler."),
        ("relay", "missing", "The second shuffler signed for a batch without your answer"),
        ("relay", "unproven", "No proof long after the deadline"),
    ],
)
def test_a_receipt_says_which_hop_was_checked(signer: str, inclusion: str, words: str) -> None:
    """With two shufflers the second one signs; what follows is sampled."""
    receipt = user_agent_pb2.GetReceiptResponse(state="arrived", inclusion=inclusion, signer=signer)

    assert words in printed(partial(show_receipt, receipt), 300)
    checked = [(hop["to"], hop["checked_by"]) for hop in hops_of(receipt)]
    sampled = [("analyzer", "sentinels")] * (signer == "relay")
    assert [(signer, "this device"), *sampled] == checked


def test_a_task_says_what_it_asks_before_it_is_answered() -> None:
    """Its title, question and purpose, each on its line; empty ones are left out."""
    texts = {"title": "Flu", "prompt": "Ill?\x1b", "purpose": "care", "series": ""}

    assert "Flu\nIll?\\x1b\nPurpose: care\n" == describe_texts(texts)


def test_a_value_among_the_arguments_is_not_repeated() -> None:
    """It may be the person's own."""
    for words, message in (
        (
            ["secretcity"],
            "contribute takes the digest, and only the options that --help lists; it asks",
        ),
        (["--kind", "secretcity"], "it must be one of 'categorical', 'ordered', 'string'"),
    ):
        outcome = CliRunner().invoke(
            app, ["contribute", "ab" * 32, "--address=agent=unix:n", *words]
        )
        assert 2 == outcome.exit_code
        assert message in outcome.stderr
        assert "secretcity" not in outcome.output


def test_a_receipt_can_be_copied() -> None:
    """Its digits are on one line, even on a narrow terminal."""
    receipt = user_agent_pb2.GetReceiptResponse(inclusion="unchecked", receipt=b"r" * 64)
    shown = printed(partial(show_receipt, receipt), 40)

    assert "this device checks regularly." in shown
    assert receipt.receipt.hex() in shown


@pytest.mark.parametrize("state", ["pending", "refused", "lost"])
def test_an_answer_without_evidence_promises_no_proof(state: str) -> None:
    """Nothing of it is checked."""
    receipt = user_agent_pb2.GetReceiptResponse(state=state, inclusion="unchecked")
    shown = printed(partial(show_receipt, receipt), 100)

    assert shown.startswith(f"Your answer: {state}.")
    assert "checks regularly" not in shown
    assert 2 == len([line for line in shown.splitlines() if line.strip()])


async def test_a_dead_service_ends_the_live_page_before_it_is_served(tmp_path: Path) -> None:
    """The command prints the error and exits with status 1."""
    (tmp_path / "token").write_text("t", encoding="utf-8")
    options = ("--address=shuffler=127.0.0.1:1", "--token-file", f"{tmp_path}/token")
    status, printed, complaint = await run_command("live", "ab" * 32, *options)

    assert (1, "") == (status, printed)
    assert "127.0.0.1:1 does not answer" in complaint


@pytest.mark.parametrize(
    "command",
    [
        "contribute {}",
        "live {}",
        "load local {} --shuffler h:1",
        "sentinels plant --task {} --count 1 --output o",
        "sentinels check --task {} --input /dev/null",
    ],
)
@pytest.mark.parametrize("text", ["5b1f", "a" * 66, "x" * 64])
def test_a_task_is_named_by_its_whole_digest(command: str, text: str) -> None:
    """Every command says so in the same sentence, which does not repeat the text."""
    rule = f"has {len(text)} characters; it must be 64 hexadecimal digits"
    with pytest.raises(UsageError, match=f"^the task's digest {rule}$"):
        shown(command.format(text))


@pytest.mark.parametrize("content", [b"", b"a\x01b", b"a\nb", b"\xff"])
def test_a_file_without_a_token_is_refused_before_a_call(tmp_path: Path, content: bytes) -> None:
    """Without this, gRPC raises its own error for a header that it cannot send."""
    (tmp_path / "token").write_bytes(content)

    with pytest.raises(SettingsError, match="does not contain an operator token"):
        read_token(tmp_path / "token")


def test_expected_shares_that_are_no_numbers_are_wrong_usage() -> None:
    """The message names the option."""
    with pytest.raises(UsageError, match=r"^--head must be shares such as 0\.05,0\.03$"):
        shown("plan --users 100 --central-epsilon 1 --domain-size 5 --head a")


def test_a_page_is_written_beside_its_output() -> None:
    """So that no file is replaced that the user has not named; never in the output's place."""
    assert Path("mine.html") == page_beside(Path("mine.json"), None, "a.html")
    assert Path("page.html") == page_beside(Path("mine.json"), Path("page.html"), "a.html")
    with pytest.raises(UsageError, match="must be different files"):
        page_beside(Path("mine.html"), None, "a.html")
    for device in ("/dev/stdout", "/dev/fd/1", "/dev/null"):
        assert Path("a.html") == page_beside(Path(device), None, "a.html")
    for output in ("mine.json", "."):
        with pytest.raises(SettingsError, match="cannot be written: it is a folder"):
            page_beside(Path(output), Path("/"), "a.html")
