"""Client with which a person calls their user agent."""

from collections.abc import Mapping
from typing import Any, Final, cast

from shuffledp.common.errors import ConflictError, CredentialError, PeerRefusalError, SettingsError
from shuffledp.common.messages.submission import Value
from shuffledp.common.runtime.rpc import LONG_DEADLINE, open_channel
from shuffledp.common.task.task import MOST_CHARACTERS
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.submissions import contribution_to_wire
from shuffledp.deploy.clients.base import reply_or_advice
from shuffledp.protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc

_REFUSED_ADVICE: Final = (
    "{}. Put a valid credential into the file that the agent's setting credential_file names. The "
    "agent has saved the answer, has charged its epsilon, and will send it unchanged"
)
_CONFLICT_ADVICE: Final = (
    "This person has probably answered already, in a browser or on another device: then that "
    "answer counts, and this one never will. Else correct the credential in credential_file: {}"
)
_ADVICE: Final = {CredentialError.status: _REFUSED_ADVICE, ConflictError.status: _CONFLICT_ADVICE}


async def ask_for_question(agent: str, digest: TaskDigest) -> Mapping[str, str]:
    """Return a task's texts by field; raise PeerRefusalError if the agent refuses the task."""
    request = user_agent_pb2.GetQuestionRequest(task_digest=digest)
    texts = (await _call(agent, "GetQuestion", request)).texts  # in no order
    return {name: texts[name] for name in (*MOST_CHARACTERS, *sorted(texts)) if name in texts}


async def send(
    agent: str, digest: TaskDigest, value: Value, person: str
) -> user_agent_pb2.ContributeResponse:
    """Contribute through an agent on a Unix socket; raise PeerRefusalError if it refuses."""
    request = contribution_to_wire(digest, value, person)
    try:
        return cast("user_agent_pb2.ContributeResponse", await _call(agent, "Contribute", request))
    except PeerRefusalError as error:
        if error.status not in _ADVICE:
            raise
        raise PeerRefusalError(error.status, _ADVICE[error.status].format(error)) from error


async def ask_for_receipt(
    agent: str, digest: TaskDigest, person: str
) -> user_agent_pb2.GetReceiptResponse:
    """Return the receipt of an answer; raise PeerRefusalError if there is no answer."""
    request = user_agent_pb2.GetReceiptRequest(task_digest=digest, person=person)
    return cast("user_agent_pb2.GetReceiptResponse", await _call(agent, "GetReceipt", request))


async def ask_for_log_evidence(agent: str) -> user_agent_pb2.GetLogEvidenceResponse:
    """Return what the device saw of the log."""
    request = user_agent_pb2.GetLogEvidenceRequest()
    answer = await _call(agent, "GetLogEvidence", request)
    return cast("user_agent_pb2.GetLogEvidenceResponse", answer)


async def _call(agent: str, method: str, request: object) -> Any:  # noqa: ANN401  # the type depends on the method
    if not agent.startswith("unix:"):
        raise SettingsError(f"the agent's address is {agent}; it must begin with unix:")
    async with open_channel(agent, "user_agent", None) as channel:
        stub = user_agent_pb2_grpc.UserAgentStub(channel)
        call = getattr(stub, method)(request, timeout=LONG_DEADLINE)
        advice = "Check that it is running, and the address"
        return await reply_or_advice(call, f"the user agent at {agent}", advice)
