"""A person's calls to their own user agent."""

from typing import Final

from common.errors import CredentialError, PeerRefusalError, SettingsError
from common.messages.value import Value
from common.runtime.rpc import LONG_DEADLINE, open_channel, reply
from common.task_digest import TaskDigest
from common.wire.submissions import contribution_to_wire
from protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc

_REFUSED_ENTRY: Final = (
    "Put the token into the file that the agent's setting token_file names: the answer is kept, "
    "and sent later as it is; its epsilon is spent already"
)


async def send(
    agent: str, digest: TaskDigest, value: Value, person: str
) -> user_agent_pb2.ContributeResponse:
    """
    Contribute a value through a user agent on a Unix socket, which needs no TLS.

    Raises:
        SettingsError: The address is not a Unix socket's.
        ValueRangeError: The value is larger than any item's number.
        PeerError, PeerRefusalError: The agent cannot be reached, or refuses.
    """
    _check_socket(agent)
    request = contribution_to_wire(digest, value, person)
    async with open_channel(agent, "user_agent", None) as channel:
        stub = user_agent_pb2_grpc.UserAgentStub(channel)
        try:
            return await reply(stub.Contribute(request, timeout=LONG_DEADLINE), _whom(agent))
        except PeerRefusalError as error:
            if error.status != CredentialError.status:
                raise
            raise PeerRefusalError(error.status, f"{error}. {_REFUSED_ENTRY}") from error


async def ask_for_receipt(
    agent: str, digest: TaskDigest, person: str
) -> user_agent_pb2.GetReceiptResponse:
    """
    Ask a user agent on a Unix socket for the receipt of an answer.

    Raises:
        SettingsError: The address is not a Unix socket's.
        PeerError, PeerRefusalError: The agent cannot be reached, or has no answer.
    """
    _check_socket(agent)
    request = user_agent_pb2.GetReceiptRequest(task_digest=digest, person=person)
    async with open_channel(agent, "user_agent", None) as channel:
        stub = user_agent_pb2_grpc.UserAgentStub(channel)
        return await reply(stub.GetReceipt(request, timeout=LONG_DEADLINE), _whom(agent))


def _check_socket(agent: str) -> None:
    if not agent.startswith("unix:"):
        raise SettingsError("the agent's address must begin with unix:")


def _whom(agent: str) -> str:
    return f"the user agent at {agent}"
