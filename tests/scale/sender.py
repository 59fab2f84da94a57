"""Users of several front-ends, whose calls fail, are repeated elsewhere, or are hostile."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.task.task import SUBMISSION_ID_BYTES, Task
from shuffledp.common.wire.submissions import outcomes_from_wire
from shuffledp.deploy.load.users import GroupContributor
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc

CALL: Final = 250
"""Users whose envelopes are sealed and sent together."""
_AT_ONCE: Final = 8
_HOSTILE: Final = 5
"""Envelopes of each hostile kind in a call."""
_PAUSE: Final = 0.2
_DEADLINE: Final = 30.0
_ARRIVED: Final = {Outcome.STORED, Outcome.REPEATED}


def seal(signed: SignedTask, seed: int, calls: int, call: int) -> tuple[list[bytes], list[bytes]]:
    """
    Seal the envelopes of one call's users, and others under the first users' submission ids.

    All users of a call hold the same item; `expected` draws the same reports.
    """
    task = Task.from_bytes(signed.task_bytes)
    contributor = GroupContributor(task, signed.digest())
    ids = [
        np.random.default_rng((seed, call, user)).bytes(SUBMISSION_ID_BYTES) for user in range(CALL)
    ]
    values = [_item(task.domain_size, calls, call)] * CALL
    envelopes = contributor.prepare_group(values, ids, np.random.default_rng((seed, call)))
    others = contributor.prepare_group(
        values[:_HOSTILE], ids[:_HOSTILE], np.random.default_rng((seed, call, 0, 1))
    )
    return envelopes, others


def expected(signed: SignedTask, seed: int, calls: int) -> NDArray[np.int64]:
    """Count all users' reports by item, as one machine would."""
    mechanism = mechanism_of(Task.from_bytes(signed.task_bytes))
    reports = [
        mechanism.randomize(
            np.full(CALL, _item(mechanism.domain_size, calls, call)),
            np.random.default_rng((seed, call)),
        )
        for call in range(calls)
    ]
    return mechanism.tally(np.concatenate(reports))


def _item(domain_size: int, calls: int, call: int) -> int:
    """Return the item of a call's users, which rises from call to call."""
    return call * domain_size // calls


class Users:
    """Users who retry at any front-end until they are acknowledged."""

    def __init__(
        self,
        signed: SignedTask,
        addresses: Sequence[str],
        authority: bytes,
        seed: int,
        tokens: Callable[[int], Awaitable[list[bytes]]] | None = None,
    ) -> None:
        """`tokens` returns those of one call's users; without any, hostile envelopes are sent."""
        self._signed = signed
        self._tokens = tokens
        self._addresses = addresses
        self._authority = authority
        self._seed = seed
        self._choices = random.Random(seed)  # noqa: S311  # a test's own
        self.acknowledged = self.retries = self.repeated = 0

    async def send(self, calls: int) -> None:
        """Seal and send everything; raise an error if an answer is wrong."""
        loop, room = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:

            async def send_one(call: int) -> None:
                async with room:
                    work = partial(seal, self._signed, self._seed, calls, call)
                    envelopes, others = await loop.run_in_executor(pool, work)
                    if self._tokens:
                        await self._send(envelopes, [], await self._tokens(call))
                    else:
                        await self._send(envelopes, others)

            async with asyncio.TaskGroup() as group:
                for call in range(calls):
                    group.create_task(send_one(call))

    async def _send(
        self, envelopes: list[bytes], others: list[bytes], tokens: Sequence[bytes] = ()
    ) -> None:
        """Send a call with hostile envelopes; repeat a fifth of the calls elsewhere."""
        hostile = [self._choices.randbytes(len(envelopes[0])) for _ in others]
        hostile += [envelope + b"\0" for envelope in others]
        outcomes = await self._persist([*envelopes, *hostile], tokens)
        assert set(outcomes[:CALL]) <= _ARRIVED, set(outcomes[:CALL])
        assert {Outcome.MALFORMED} >= set(outcomes[CALL:]), set(outcomes[CALL:])
        self.acknowledged += CALL
        self.repeated += outcomes.count(Outcome.REPEATED)
        if self._choices.random() < 0.2:
            again = await self._persist([*envelopes, *others], tokens)
            assert set(again[:CALL]) <= {Outcome.REPEATED, Outcome.CLOSED}
            assert set(again[CALL:]) <= {Outcome.CONFLICT, Outcome.CLOSED}

    async def _persist(self, envelopes: list[bytes], tokens: Sequence[bytes]) -> list[Outcome]:
        """Call random front-ends until one answers."""
        request = shuffler_pb2.SubmitBulkRequest(
            task_digest=self._signed.digest(), envelopes=envelopes, tokens=tokens
        )
        while True:
            address = self._choices.choice(self._addresses)
            async with open_channel(address, "shuffler", self._authority) as channel:
                stub = shuffler_pb2_grpc.ShufflerStub(channel)
                try:
                    call = stub.SubmitBulk(request, timeout=_DEADLINE)
                    return outcomes_from_wire(await reply(call, "a front-end"))
                except PeerError:
                    self.retries += 1
            await asyncio.sleep(_PAUSE * self._choices.uniform(0.5, 1.5))
