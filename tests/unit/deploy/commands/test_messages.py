"""What a newcomer is told: which setting, which option, which command helps."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from common.errors import PeerRefusalError, SettingsError, ShuffleDpError, WireError
from common.runtime.rpc import open_channel
from common.task_digest import TaskDigest
from deploy.cli import app
from deploy.clients.user_agent import send
from deploy.commands.options import task_digest
from deploy.commands.person import _MEANING, contributed_in_words
from deploy.commands.sentinels import _begins, _interrupted
from deploy.sentinels.journal import PlantedSentinel, SentinelState
from protos.shuffledp.v1 import user_agent_pb2


async def _refuse(_request: object, context: Any) -> None:
    """Answer as an agent whose shuffler takes no submission without a token."""
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is asked for")


async def test_who_has_no_token_is_told_where_it_goes_and_what_is_spent(tmp_path: Path) -> None:
    """The answer is kept; nothing is to be done but to put the token there."""
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
def test_an_answer_that_was_there_is_not_said_to_have_been_missing(
    *, repeated: bool, sent: bool, words: str
) -> None:
    """Only what this call sent had not arrived."""
    told = user_agent_pb2.ContributeResponse(repeated=repeated, local_epsilon=4.0, sent=sent)

    assert contributed_in_words(told).endswith(words)


def test_who_waits_for_a_proof_is_told_what_sets_the_pace() -> None:
    """By the setting's name."""
    assert "inclusion_check_seconds" in _MEANING["unchecked"]


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
    """A name that cannot be resolved would be the answer, or none for a long time."""
    with pytest.raises(SettingsError, match="it must be host:port, or unix:PATH"):
        open_channel(address, "analyzer", b"")


def test_who_interrupts_planting_is_told_how_far_it_is() -> None:
    """And, from the start, that the same command continues."""
    states = (SentinelState.ACKNOWLEDGED, SentinelState.STORED, SentinelState.PLANNED)
    planted = [PlantedSentinel(envelope=b"", leaves=b"", state=state) for state in states]

    assert "Sending 300 sentinels over 60 seconds" in _begins(300, 60.0)
    assert "run the same command again" in _begins(1, 0.0)
    assert "1 of 3 sentinels are acknowledged. Run the same command again" in _interrupted(
        planted, 3
    )


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
    """And the key of a file of questions."""
    outcome = CliRunner().invoke(app, ["account", "--users", "100", *arguments])

    assert isinstance(outcome.exception, ShuffleDpError)
    assert option in str(outcome.exception)
    assert "in a file" in str(outcome.exception)
