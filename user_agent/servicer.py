"""The user agent's gRPC methods: wire in, core, wire out."""

from dataclasses import asdict, dataclass

from shuffledp.common.wire.fields import digest_from_wire
from shuffledp.common.wire.submissions import contribution_from_wire, receipt_request_from_wire
from shuffledp.common.wire.transparency import evidence_to_wire
from shuffledp.protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc
from shuffledp.user_agent.core import Agent


@dataclass
class UserAgentServicer(user_agent_pb2_grpc.UserAgentServicer):
    """Serves the people who use the device."""

    agent: Agent

    async def GetQuestion(
        self, request: user_agent_pb2.GetQuestionRequest, _context: object
    ) -> user_agent_pb2.GetQuestionResponse:
        task = await self.agent.task(digest_from_wire(request.task_digest))
        return user_agent_pb2.GetQuestionResponse(texts=task.texts)

    async def Contribute(
        self, request: user_agent_pb2.ContributeRequest, _context: object
    ) -> user_agent_pb2.ContributeResponse:
        digest, value, person = contribution_from_wire(request)
        outcome = await self.agent.contribute(digest, value, person)
        return user_agent_pb2.ContributeResponse(**asdict(outcome))

    async def GetReceipt(
        self, request: user_agent_pb2.GetReceiptRequest, _context: object
    ) -> user_agent_pb2.GetReceiptResponse:
        saved = await self.agent.record(*receipt_request_from_wire(request))
        return user_agent_pb2.GetReceiptResponse(
            state=saved.state,
            inclusion=saved.inclusion,
            envelope_hash=saved.envelope_hash,
            receipt=saved.receipt,
            signer="relay" if saved.claim.chained else "analyzer",
        )

    async def GetLogEvidence(
        self, _request: user_agent_pb2.GetLogEvidenceRequest, _context: object
    ) -> user_agent_pb2.GetLogEvidenceResponse:
        return evidence_to_wire(await self.agent.log_evidence())
