"""Messages name the setting, option or command that helps."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from common.errors import (
    PeerRefusalError,
    SettingsError,
    ShuffleDpError,
    ValueRangeError,
    WireError,
)
from common.runtime.rpc import open_channel
from common.task_digest import TaskDigest
from deploy.cli import app
from deploy.clients.base import read_token
from deploy.clients.user_agent import send
from deploy.commands.options import task_digest
from deploy.commands.person import contributed_in_words
from deploy.tasks.value_parser import parse_value
from protos.shuffledp.v1 import user_agent_pb2


async def _refuse(_request: object, context: Any) -> None:
    """Answer as an agent whose shuffler takes no submission without a token."""
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is asked for")


async def test_a_missing_token_is_answered_with_its_setting_and_the_spent_epsilon(
    tmp_path: Path,
) -> None:
    """And that the answer is kept."""
    server = grpc.aio.server()
    calls: dict[str, Any] = {"Contribute": grpc.unary_unary_rpc_method_handler(_refuse)}
    service = grpc.method_handlers_generic_handler("shuffledp.v1.UserAgent", calls)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{tmp_path}/agent")
    await server.start()
    with pytest.raises(PeerRefusalError) as caught:
        await send(f"unix:{tmp_path}/agent", TaskDigest(bytes(32)), 1, "")
    await server.stop(None)

    assert "UNAUTHENTICATED" == caught.value.status
    for part in ("a token is asked for", "setting token_file", "is kept", "is spent already"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("repeated", "sent", "words"),
    [
        (False, True, "Contributed. This spends a local epsilon of 4."),
        (True, True, "The earlier answer had not arrived, and has been sent now."),
        (True, False, "The earlier answer has arrived."),
    ],
)
def test_a_contribution_is_described(*, repeated: bool, sent: bool, words: str) -> None:
    """New, sent now, or arrived earlier."""
    told = user_agent_pb2.ContributeResponse(repeated=repeated, local_epsilon=4.0, sent=sent)

    assert contributed_in_words(told).endswith(words)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("5b1f", "has 4 digits; it must have 64"),
        ("a" * 66, "has 66 digits; it must have 64"),
        ("x" * 64, "must be 64 hexadecimal digits"),
    ],
)
def test_a_task_is_named_by_its_whole_digest(text: str, sentence: str) -> None:
    """And none of the text is repeated."""
    with pytest.raises(WireError, match=f"^the task's digest {sentence}$"):
        task_digest(text)


@pytest.mark.parametrize("address", ["127.0.0.1", "analyzer", "", "127.0.0.1:", "a:b"])
def test_an_address_without_a_port_is_refused_before_a_call(address: str) -> None:
    """Otherwise the answer is slow, or that a name cannot be resolved."""
    with pytest.raises(SettingsError, match="it must be host:port, or unix:PATH"):
        open_channel(address, "analyzer", b"")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--alphabet", "8", "--delta", "1e-6"), "--local-epsilon"),
        (("--local-epsilon", "2", "--delta", "1e-6"), "--alphabet"),
        (("--alphabet", "8", "--local-epsilon", "2"), "--delta or --central-epsilon"),
    ],
)
def test_the_accountant_names_the_option_that_is_missing(
    arguments: tuple[str, ...], option: str
) -> None:
    """And the key in a file of questions."""
    outcome = CliRunner().invoke(app, ["account", "--users", "100", *arguments])

    assert isinstance(outcome.exception, ShuffleDpError)
    assert option in str(outcome.exception)
    assert "in a file" in str(outcome.exception)


@pytest.mark.parametrize("content", [b"", b"a\x01b", b"a\nb", b"\xff"])
def test_a_file_without_a_token_is_refused_before_a_call(tmp_path: Path, content: bytes) -> None:
    """Otherwise gRPC fails with an error of its own on a header that it cannot send."""
    (tmp_path / "token").write_bytes(content)

    with pytest.raises(SettingsError, match="does not hold an operator's token"):
        read_token(tmp_path / "token")


@pytest.mark.parametrize("text", ["", "-1", "1.5", "9" * 21, "9" * 5000, "\u0663"])
def test_a_value_that_is_no_items_number_is_refused_without_being_repeated(text: str) -> None:
    """Also thousands of digits, which Python itself refuses to read."""
    with pytest.raises(ValueRangeError, match=r"^a value is an item's number, 0 or more$"):
        parse_value(text, "categorical")
