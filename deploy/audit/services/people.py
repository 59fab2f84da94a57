"""The users of a play: how their answers reach the shuffler, honest or not."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import grpc
import numpy as np

from common.crypto.hpke import HpkePublicKey, envelope_context, report_context
from common.crypto.signing import SignedTask
from common.errors import ShuffleDpError
from common.mechanisms.base import is_null
from common.mechanisms.registry import mechanism_of
from common.messages.submission import Outcome, Submission, pack
from common.runtime.rpc import LONG_DEADLINE, SHORT_DEADLINE, open_channel, reply
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from common.wire.submissions import outcomes_from_wire
from deploy.audit.services.traced import TracedAnswer, TracedContributor
from deploy.audit.services.trio import Trio
from protos.shuffledp.v1 import (
    shuffler_pb2,
    shuffler_pb2_grpc,
    user_agent_pb2,
    user_agent_pb2_grpc,
)

_CLIENTS: Final = 4
"""Connections that users who answer by themselves share."""
_TOGETHER: Final = 96
"""Submissions in one bulk call."""
_SINGLE: Final = 3
"""Of so many users without an agent, one sends a call of its own."""


class People:
    """All users, with their connections."""

    def __init__(self, trio: Trio, rng: np.random.Generator, told: list[TracedAnswer]) -> None:
        self._trio, self._rng, self._told = trio, rng, told
        address = trio.address("shuffler")
        authority = trio.authority.read_bytes()
        self._channels = [open_channel(address, "shuffler", authority) for _ in range(_CLIENTS)]
        self._stubs = [shuffler_pb2_grpc.ShufflerStub(channel) for channel in self._channels]
        self._agent: grpc.aio.Channel = open_channel(trio.address("user_agent"), "user_agent", None)
        self._person = user_agent_pb2_grpc.UserAgentStub(self._agent)
        self._calls = 0

    async def close(self) -> None:
        """Hang up."""
        for channel in (*self._channels, self._agent):
            await channel.close()

    async def tell_agent(
        self, digest: TaskDigest, person: str, value: int
    ) -> user_agent_pb2.ContributeResponse:
        """
        Answer as a person, through the user agent.

        Raises:
            PeerError, PeerRefusalError: It failed.
        """
        request = user_agent_pb2.ContributeRequest(task_digest=digest, value=value, person=person)
        return await reply(
            self._person.Contribute(request, timeout=LONG_DEADLINE), "the user agent"
        )

    async def answer(
        self, signed: SignedTask, values: Sequence[int], tokens: Sequence[bytes]
    ) -> None:
        """
        Answer as users without an agent, in order: some by themselves, then the others in bulk.

        Those who are alone show a token, if there are any. What the shuffler refuses is refused:
        the tape tells.
        """
        digest = signed.digest()
        contributor = TracedContributor(
            Task.from_bytes(signed.task_bytes), digest, told=self._told.append
        )
        envelopes = [contributor.prepare(value, self._rng) for value in values]
        alone = len(envelopes) // _SINGLE
        for place, envelope in enumerate(envelopes[:alone]):
            with suppress(ShuffleDpError):
                await self.submit(digest, envelope, tokens[place] if tokens else b"")
        for start in range(alone, len(envelopes), _TOGETHER):
            await self._bulk(digest, envelopes[start : start + _TOGETHER])

    async def answer_wrongly(self, signed: SignedTask) -> bool:
        """
        Send what is no answer, and an answer that came before: alone, and all in bulk.

        Returns:
            Whether each came out as it must, both times.
        """
        digest, dishonest = signed.digest(), Dishonest(signed, self._rng)
        before = next(one for one in self._told if one.task_digest == digest)
        wrong = {
            dishonest.garbage(): Outcome.MALFORMED,
            dishonest.garbage(len(before.envelope) + 1): Outcome.MALFORMED,
            dishonest.under_id(before.submission_id): Outcome.CONFLICT,
            before.envelope: Outcome.REPEATED,
        }
        alone = list[Outcome]()
        for envelope in wrong:
            with suppress(ShuffleDpError):
                alone.append(await self.submit(digest, envelope))
        together = await self._bulk(digest, list(wrong))
        return alone == [Outcome.REPEATED] and together == list(wrong.values())

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> Outcome:
        """
        Send one envelope.

        Raises:
            PeerError, PeerRefusalError: It was not taken.
        """
        request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope, token=token)
        answer = await reply(self._stub().Submit(request, timeout=SHORT_DEADLINE), "the shuffler")
        return Outcome.REPEATED if answer.repeated else Outcome.STORED

    async def _bulk(self, digest: TaskDigest, envelopes: Sequence[bytes]) -> list[Outcome]:
        request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=envelopes)
        answer = await reply(
            self._stub().SubmitBulk(request, timeout=LONG_DEADLINE), "the shuffler"
        )
        return outcomes_from_wire(answer)

    def _stub(self) -> "shuffler_pb2_grpc.ShufflerAsyncStub":
        self._calls += 1
        return self._stubs[self._calls % len(self._stubs)]


class Dishonest:
    """A user who seals what no device would."""

    def __init__(self, signed: SignedTask, rng: np.random.Generator) -> None:
        self._task, self._digest = Task.from_bytes(signed.task_bytes), signed.digest()
        self._mechanism, self._rng = mechanism_of(self._task), rng
        self._analyzer = HpkePublicKey(self._task.suite, self._task.analyzer_key)
        self._shuffler = HpkePublicKey(self._task.suite, self._task.shuffler_key)

    def garbage(self, length: int | None = None) -> bytes:
        """Give what is no envelope, of the right length or another."""
        return self._rng.bytes(self._task.envelope_bytes if length is None else length)

    def under_id(self, submission_id: bytes) -> bytes:
        """Give an envelope under an id that somebody else has used."""
        return self._envelope(submission_id, self._reports())

    def unreadable(self, other: TaskDigest) -> bytes:
        """Give an envelope of which one report was sealed for another task."""
        reports = self._reports()
        plaintext = self._mechanism.dummies(1, self._rng).tobytes()
        reports[0] = self._analyzer.seal(plaintext, report_context(other))
        return self._envelope(self._rng.bytes(SUBMISSION_ID_BYTES), reports)

    def malformed(self) -> bytes:
        """Give an envelope with a report that the mechanism never makes, if there is such."""
        reports = self._reports()
        reports[0] = self._seal(self._impossible())
        return self._envelope(self._rng.bytes(SUBMISSION_ID_BYTES), reports)

    def repeated(self) -> bytes:
        """Give an envelope that holds one report twice, or, if it holds one, garbage."""
        reports = self._reports()
        reports[0] = reports[-1] if len(reports) > 1 else self._rng.bytes(len(reports[0]))
        return self._envelope(self._rng.bytes(SUBMISSION_ID_BYTES), reports)

    def _impossible(self) -> bytes:
        dtype = self._mechanism.report_dtype
        size = dtype.itemsize
        for text in (b"\xff" * (size - 1) + b"\xfe", b"\xfe" * size, b"\xff" * size):
            report = np.frombuffer(text, dtype=dtype)
            if not self._mechanism.valid(report)[0] and not is_null(report)[0]:
                return text
        return b"\xff" * size

    def _reports(self) -> list[bytes]:
        made = self._mechanism.dummies(self._task.reports_per_user, self._rng)
        return [self._seal(report.tobytes()) for report in made]

    def _seal(self, plaintext: bytes) -> bytes:
        return self._analyzer.seal(plaintext, report_context(self._digest))

    def _envelope(self, submission_id: bytes, reports: Sequence[bytes]) -> bytes:
        submission = Submission(submission_id=submission_id, sealed_reports=b"".join(reports))
        return self._shuffler.seal(pack(submission), envelope_context(self._digest))
