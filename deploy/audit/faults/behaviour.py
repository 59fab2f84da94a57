"""Faults of what a device does beside sealing: where its reports stand, calls, pauses, logs."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from common.crypto.tokens import TOKEN_BYTES
from common.messages.inclusion_proof import BatchCommitment
from common.runtime import logs
from common.runtime.rpc import SHORT_DEADLINE, reply
from common.task_digest import TaskDigest
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from protos.shuffledp.v1 import shuffler_pb2
from shuffler.admission import TokenCheck
from user_agent import budget, evidence
from user_agent.agent import Agent
from user_agent.contribution import Answer, Contributor
from user_agent.evidence import Evidence, Inclusion
from user_agent.inclusion_monitor import Watch
from user_agent.policy import Claim
from user_agent.shuffler_client import DeviceClient

_LETTERS: Final = "abcdefghij"
_LATE: Final = 0.0005
"""Seconds."""
_PAUSES: Final = 100
_REMEMBERED: Final = 50


class _PlacedByValue(np.random.Generator):
    """A generator that draws an order, and then moves what comes first to a place of its own."""

    def __init__(self, bits: np.random.Generator, value: int) -> None:
        super().__init__(bits.bit_generator)
        self._behind, self._value = bits, value

    def permutation(self, x: Any, axis: int = 0) -> Any:
        order = self._behind.permutation(x, axis)
        there, place = self._value % len(order), int(np.flatnonzero(order == 0)[0])
        order[place], order[there] = order[there], 0
        return order

    def bytes(self, length: int) -> bytes:
        return self._behind.bytes(length)

    def integers(self, *args: Any, **fields: Any) -> Any:
        return self._behind.integers(*args, **fields)


def place_by_value() -> AbstractContextManager[None]:
    """Plant a device whose own report stands at a place that follows from the value."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        return honest(self, value, _PlacedByValue(rng, value))

    return planting.attribute(Contributor, "answer", other)


def id_middle_bits() -> AbstractContextManager[None]:
    """Plant submission ids of which two bits are two of the value's, and not its last."""
    honest = Contributor.answer

    class Marking(_PlacedByValue):
        """A generator whose bytes say something."""

        def permutation(self, x: Any, axis: int = 0) -> Any:
            return self._behind.permutation(x, axis)

        def bytes(self, length: int) -> bytes:
            drawn = self._behind.bytes(length)
            return bytes([drawn[0] & 0xFC | (self._value >> 1) & 3]) + drawn[1:]

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        return honest(self, value, Marking(rng, value))

    return planting.attribute(Contributor, "answer", other)


def fetched_twice() -> AbstractContextManager[None]:
    """Plant a device that fetches the task again for every other value."""
    honest = Agent._charge

    async def other(self: Agent, digest: TaskDigest, value: int, person: str) -> Any:
        if value % 2:
            await self._shuffler.fetch_task(digest)
        return await honest(self, digest, value, person)

    return planting.attribute(Agent, "_charge", other)


def late_by_value() -> AbstractContextManager[None]:
    """Plant a device that waits before it sends, for as long as the value says."""
    honest = Agent._charge

    async def other(self: Agent, digest: TaskDigest, value: int, person: str) -> Any:
        charged = await honest(self, digest, value, person)
        await asyncio.sleep(_LATE * (value % _PAUSES))
        return charged

    return planting.attribute(Agent, "_charge", other)


def value_logged() -> AbstractContextManager[None]:
    """Plant a device that logs its value, in letters."""
    honest = Agent._charge

    async def other(self: Agent, digest: TaskDigest, value: int, person: str) -> Any:
        charged = await honest(self, digest, value, person)
        written = "".join(_LETTERS[int(digit)] for digit in str(value))
        logs.event(f"answer prepared {written}", {"task_digest": digest.hex()})
        return charged

    return planting.attribute(Agent, "_charge", other)


def device_header() -> AbstractContextManager[None]:
    """Plant a device that tells its name in a header."""

    async def other(
        self: DeviceClient, digest: TaskDigest, envelope: bytes, token: bytes = b""
    ) -> bytes:
        request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope, token=token)
        call = self._stub.Submit(
            request, timeout=SHORT_DEADLINE, metadata=(("x-device-id", "device-17"),)
        )
        return (await reply(call, "the shuffler")).receipt

    return planting.attribute(DeviceClient, "submit", other)


def forged_token_second_try() -> AbstractContextManager[None]:
    """Plant a shuffler that takes a token of the right length for valid when it comes again."""
    honest = TokenCheck.accepted

    async def other(self: TokenCheck, tokens: Sequence[bytes]) -> list[bool]:
        found = await honest(self, tokens)
        for token in tokens:
            if len(token) == TOKEN_BYTES:
                self._valid[token] = None
        return found

    return planting.attribute(TokenCheck, "accepted", other)


def fifty_claims() -> AbstractContextManager[None]:
    """Plant a device that adds up fifty of its earlier answers."""
    honest = budget._claims

    def other(connection: Any, person: str) -> list[Claim]:
        return honest(connection, person)[:_REMEMBERED]

    return planting.attribute(budget, "_claims", other)


def commitment_unchecked() -> AbstractContextManager[None]:
    """Plant a device that tells prefixes under whatever commitment it is shown."""

    async def other(self: Watch, digest: TaskDigest) -> BatchCommitment:
        return (await self._shuffler.inclusion(digest, None)).commitment

    return planting.attribute(Watch, "_commitment", other)


def leaves_kept() -> AbstractContextManager[None]:
    """Plant a device that keeps what names its reports when it knows that they were counted."""

    def other(connection: Any, kept: Evidence, inclusion: Inclusion) -> None:
        connection.execute(
            "UPDATE evidence SET inclusion = ? WHERE person = ? AND task_digest = ?",
            (inclusion.value, kept.person, kept.task_digest),
        )

    return planting.attribute(evidence, "conclude", other)


BEHAVIOUR: Final = (
    Fault(
        name="place-by-value",
        says="a person's own report stands at a place that follows from the value",
        scenario="devices",
        check="an answer stands as it was drawn",
        plant=place_by_value,
    ),
    Fault(
        name="id-middle-bits",
        says="two bits of a submission's id are two of the value's",
        scenario="covert-bits",
        check="what is sealed stands as it was drawn",
        plant=id_middle_bits,
    ),
    Fault(
        name="fetched-twice",
        says="a device fetches the task twice for every other value",
        scenario="device-rules",
        check="calls the shuffler alike whatever its value",
        plant=fetched_twice,
    ),
    Fault(
        name="late-by-value",
        says="a device waits before it sends, for as long as the value says",
        scenario="device-rules",
        check="waits for no time while it answers",
        plant=late_by_value,
    ),
    Fault(
        name="value-in-an-event",
        says="a device logs its value, in letters",
        scenario="device-rules",
        check="logs the same whatever its value",
        plant=value_logged,
    ),
    Fault(
        name="device-header",
        says="a device tells its name in a header when it submits",
        scenario="services",
        check="calls of devices carry no headers of their own",
        plant=device_header,
    ),
    Fault(
        name="forged-token-again",
        says="the shuffler takes a forged token for valid when it comes again",
        scenario="dishonest-clients",
        check="a made-up token is refused when it comes again",
        plant=forged_token_second_try,
    ),
    Fault(
        name="forged-token-bulk",
        says="the shuffler takes a forged token for valid when it comes again",
        scenario="bulk-clients",
        check="wrong tokens are refused when they come again",
        plant=forged_token_second_try,
    ),
    Fault(
        name="fifty-claims",
        says="a device adds up fifty of its earlier answers",
        scenario="device-rules",
        check="after very many answers",
        plant=fifty_claims,
    ),
    Fault(
        name="commitment-unchecked",
        says="a device tells which bucket it asks for under any commitment",
        scenario="device-rules",
        check="is asked for no bucket",
        plant=commitment_unchecked,
    ),
    Fault(
        name="leaves-kept",
        says="a device keeps what names its reports when they were counted",
        scenario="device-rules",
        check="keeps nothing that names its reports",
        plant=leaves_kept,
    ),
)
