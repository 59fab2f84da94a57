"""Planting sentinels over an in-memory shuffler and analyzer, interrupted at every call."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self, cast

import numpy as np
import pytest

from shuffledp.common import errors
from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.sentinels.planting import SentinelRun
from shuffledp.deploy.sentinels.sentinel_file import PlantedSentinel, SentinelState
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import published

_CASE = published(n_min=10, target_size=20)
_DIGEST = _CASE.signed.digest()
_Refused = tuple[bool, errors.PeerError]
_ARRIVED: Final = errors.PeerRefusalError(errors.BatchStateError.status, "has arrived")


class StoppedError(Exception):
    """The operator's process ended here."""


class Operation(MemoryShuffler):
    """A shuffler that is an operator's analyzer too, and the operator's file between runs."""

    def __init__(self, kept: Path, signed: SignedTask = _CASE.signed) -> None:
        super().__init__(signed)
        self.kept = kept
        self.registered: dict[bytes, bool] = {}
        """Whether each sentinel that the analyzer knows was acknowledged."""
        self.submitted: list[tuple[bytes, bytes]] = []
        """Envelopes and tokens, in their order."""
        self.token = b""
        """The only token that the shuffler accepts; empty if it asks for none."""
        self.calls_left = 10**9
        """Calls until the process ends; a request and its answer count separately."""
        self.refused: _Refused | None = None
        """The analyzer's answer to planned sentinels, or to acknowledged ones; None for success."""

    def _call(self) -> None:
        if not self.calls_left:
            raise StoppedError
        self.calls_left -= 1

    async def register_sentinels(
        self, digest: TaskDigest, sentinels: Sequence[bytes], *, acknowledged: bool
    ) -> None:
        """Act as the analyzer: known ones may only become acknowledged."""
        assert digest == _DIGEST
        self._call()
        if self.refused and self.refused[0] == acknowledged:
            raise self.refused[1]
        for leaves in sentinels:
            self.registered[leaves] = self.registered.get(leaves, False) or acknowledged
        self._call()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Self]:
        """Return the shuffler."""
        yield self

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Act as the shuffler, after all are registered."""
        self._call()
        assert len(self.registered) == 4, "all are registered before any is sent"
        self.submitted.append((envelope, token))
        if self.token not in {b"", token}:
            raise errors.PeerRefusalError("UNAUTHENTICATED", "a token is asked for")
        receipt = await super().submit(digest, envelope, token)
        self._call()
        return receipt

    async def plant(
        self, count: int = 4, seed: int = 1, refused: _Refused | None = None, **changes: Any
    ) -> list[PlantedSentinel]:
        """Run the command once more."""
        self.refused = refused
        planting = SentinelRun(
            digest=_DIGEST,
            analyzer=cast("OperatorClient", self),
            connect=self.connect,
            file=self.kept,
            rng=np.random.default_rng(seed),
            wait=lambda _: asyncio.sleep(0),
            **changes,
        )
        return await planting.plant(count, over=0.0)


@pytest.fixture
def operation(tmp_path: Path) -> Operation:
    """Return an operation before its first run."""
    return Operation(tmp_path / "sentinels.jsonl")


def _states(planted: Sequence[PlantedSentinel]) -> set[SentinelState]:
    return {one.state for one in planted}


async def test_planting_stopped_anywhere_is_continued(tmp_path: Path) -> None:
    """Cut off at any call, it sends the same four: registered first, and no confirmed one again."""
    stopped = 0
    while True:
        operation = Operation(tmp_path / str(stopped))
        operation.calls_left = stopped
        try:
            await operation.plant()
        except StoppedError:
            confirmed = sum(operation.registered.values())
            sent_before = len(operation.submitted)
        else:
            break
        operation.calls_left = 10**9
        planted = await operation.plant(seed=2)

        assert 4 == len({envelope for envelope, _ in operation.submitted})
        assert len(operation.submitted) - sent_before <= 4 - confirmed
        assert {one.leaves: True for one in planted} == operation.registered
        assert {SentinelState.ACKNOWLEDGED} == _states(planted)
        sent = len(operation.submitted)
        await operation.plant(seed=3)
        assert sent == len(operation.submitted)
        stopped += 1
    assert 2 + 4 * 4 == stopped


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tokens": []}, errors.SettingsError, "4 sentinels need 4 tokens; the file has 0 "),
        (
            {"tokens": [b"1"] * 3},
            errors.SettingsError,
            "need 4 tokens; the file has 3 different ones",
        ),
        ({"refused": (False, _ARRIVED)}, errors.PeerRefusalError, "has arrived"),
        ({"count": 11}, errors.BatchStateError, "11 sentinels do not fit: .* room for 10"),
        (
            {"analyzer_identity": SigningIdentity.generate().public_identity()},
            errors.ProofError,
            "not signed by the pinned analyzer identity",
        ),
    ],
)
async def test_a_mistake_is_noticed_before_anything_is_written_or_sent(
    operation: Operation, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Registering a part of too many sentinels would take the room of others."""
    with pytest.raises(error, match=message):
        await operation.plant(**changes)

    assert not operation.kept.exists()
    assert ({}, []) == (operation.registered, operation.submitted)


async def test_only_the_task_of_the_pinned_analyzer_gets_sentinels(operation: Operation) -> None:
    """The shuffler may return another task, or one by another signer."""
    assert 4 == len(await operation.plant(analyzer_identity=_CASE.identity.public_identity()))
    with pytest.raises(errors.ProofError, match="not the requested task"):
        await Operation(operation.kept, published().signed).plant()


async def test_each_sentinel_has_a_token_of_its_own(operation: Operation) -> None:
    """A resent sentinel has the same token; more tokens than sentinels are no mistake."""
    tokens = [bytes([number]) for number in range(6)]
    operation.reachable = False
    unanswered = await operation.plant(tokens=tokens)
    operation.reachable = True
    await operation.plant(tokens=tokens)

    assert {SentinelState.UNKNOWN} == _states(unanswered)
    assert tokens[:4] * 2 == [token for _, token in operation.submitted]
    assert operation.submitted[:4] == operation.submitted[4:]


async def test_sentinels_refused_without_a_token_are_sent_with_one(operation: Operation) -> None:
    """The bytes are the same; the shuffler's reason is kept until then."""
    operation.token = b"good"
    refused = await operation.plant()
    planted = await operation.plant(tokens=[b"good"] * 4)

    assert [(SentinelState.REFUSED, "a token is asked for")] * 4 == [
        (one.state, one.reason) for one in refused
    ]
    assert [(SentinelState.ACKNOWLEDGED, "")] * 4 == [(one.state, one.reason) for one in planted]
    assert 4 == len({envelope for envelope, _ in operation.submitted})


async def test_a_receipt_that_does_not_verify_acknowledges_nothing(operation: Operation) -> None:
    """Planting stops at the first; with the right identity it goes on."""
    with pytest.raises(errors.PeerError, match="no more sentinels are sent"):
        await operation.plant(shuffler_identity=SigningIdentity.generate().public_identity())
    assert (1, 0) == (len(operation.submitted), sum(operation.registered.values()))

    planted = await operation.plant(shuffler_identity=operation.identity.public_identity())
    assert {SentinelState.ACKNOWLEDGED} == _states(planted)


@pytest.mark.parametrize("why", [errors.PeerError("away"), _ARRIVED])
async def test_unconfirmed_sentinels_keep_their_receipt(
    operation: Operation, why: errors.PeerError
) -> None:
    """The analyzer is away, or the batch was faster; nothing is sent twice for it."""
    planted = await operation.plant(refused=(True, why))
    again = await operation.plant()

    assert ({SentinelState.STORED}, {64}) == (
        _states(planted),
        {len(one.receipt) for one in planted},
    )
    assert {SentinelState.ACKNOWLEDGED} == _states(again)
    assert 4 == len(operation.submitted)
