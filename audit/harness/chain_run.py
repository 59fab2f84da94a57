"""
The honest one of two shufflers, run against the other, which sides with the analyzer.

The honest one is the deployed core on its own files. The dishonest one knows all reports but one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from analyzer.task_builder import complete
from audit.harness.clock import ManualClock
from audit.harness.in_process_run import policy_without_caps
from audit.harness.memory_analyzer import SALT, MemoryAnalyzer
from audit.harness.relay_core import InProcessRelay
from audit.harness.shuffler_core import InProcessShuffler
from common.crypto.hpke import (
    HpkePrivateKey,
    envelope_context,
    layer_context,
    report_context,
    split_every,
)
from common.crypto.signing import (
    KeyUse,
    SignedTask,
    SigningIdentity,
    sign_receipt,
    signed_key,
)
from common.errors import ConflictError
from common.limits import MAX_UNIX_TIME
from common.messages.batch import BatchManifest, chain_batch_id
from common.messages.inclusion_proof import (
    HASH_BYTES,
    BatchCommitment,
    InclusionProof,
    Tree,
)
from common.messages.submission import PLAIN_REPORT, plain_reports, split_submission
from common.task.draft import TaskDraft
from common.task.sealing import report_sealer
from common.task.task import NONCE_BYTES
from common.task_digest import TaskDigest
from deploy.tasks.value_parser import value_of
from shuffler.delivery_client import ReceivingParty
from user_agent.contribution import Contributor
from user_agent.core import Agent
from user_agent.credentials import PersonalSecrets
from user_agent.device_store import DeviceStore

Layers = list[bytes]
_MORE_USERS: Final = 8
_PAUSE: Final = 10.0
"""Seconds between two inclusion checks of a device."""
FORGED_LEAVES: Final = 2**40


class _Honest:
    """An honest shuffler, whose files are its own."""

    async def collected(self) -> None:
        """Nothing happens to them before it sends its batch."""

    async def again(self) -> None:
        """Nothing happens to them between two deliveries."""


class HonestRelay(_Honest, InProcessRelay):
    """An honest second shuffler."""

    async def take(self, layers: Layers, n_users: int) -> None:
        """Receive layers, and send what becomes of them."""
        await self.deliver(layers, n_users)
        await self.deliveries.advance()


class HonestShuffler(_Honest, InProcessShuffler):
    """An honest first shuffler."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """What the dishonest shuffler and the analyzer see of all that the honest shuffler sent."""

    times: tuple[int, ...]
    """How often the victim's report is in each of the different batches."""
    noise: NDArray[np.int64]
    """Number of reports that the honest shuffler added to each, by item; shape (batches, items)."""
    order: NDArray[np.int64]
    """Place of arrival of each report of the last batch, in its order; -1 for noise."""
    refused: int = 0
    """Deliveries that the honest shuffler refused."""


class _Receiver(MemoryAnalyzer):
    """A dishonest party that takes every delivery from its start, as if nothing had arrived."""

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Forget the parts that arrived."""
        self.staged, self.parts = False, {}
        return await super().begin_delivery(manifest, n_parts)


class ChainRun:
    """A published task with two shufflers, and the sealed layers of its users, the victim first."""

    def __init__(self, path: Path, draft: TaskDraft, rng: Generator) -> None:
        self.path, self.rng = path, rng
        self.analyzer, self.first, self.second = (SigningIdentity.generate() for _ in range(3))
        keys = [HpkePrivateKey.generate(draft.suite) for _ in range(3)]
        self.analyzer_key, self.first_key, self.second_key = keys
        envelopes, layers = (
            signed_key(identity, use, key.public_key(), MAX_UNIX_TIME)
            for identity, use, key in (
                (self.first, KeyUse.ENVELOPES, self.first_key),
                (self.second, KeyUse.LAYERS, self.second_key),
            )
        )
        if draft.relay is None:
            raise ValueError("the task has one shuffler")
        draft = replace(draft, shuffler_key=envelopes, relay=replace(draft.relay, key=layers))
        key = self.analyzer_key.public_key().raw
        self.task = complete(draft, analyzer_key=key, nonce=rng.bytes(NONCE_BYTES))
        self.signed: SignedTask = self.analyzer.sign(self.task.to_bytes())
        self.digest: TaskDigest = self.signed.digest()
        contributor, items = Contributor(self.task, self.digest), self.task.domain_size
        held = [0, *rng.integers(0, items, draft.n_min + _MORE_USERS - 1).tolist()]
        values = [value_of(self.task, item) for item in held]
        self.envelopes = [contributor.prepare(value, rng).envelope for value in values]
        context = envelope_context(self.digest)
        opened = [self.first_key.open(envelope, context) for envelope in self.envelopes]
        self.layers: Layers = [split_submission(submission)[1] for submission in opened]

    def sealed(self, count: int) -> Layers:
        """Seal reports of random items, which the dishonest first shuffler knows."""
        items = self.rng.integers(0, self.task.domain_size, count)
        seal = report_sealer(self.task, self.digest)
        return [seal(report.tobytes()) for report in plain_reports(items)]

    def _seen(self, receiver: MemoryAnalyzer, arrived: Layers, refused: int = 0) -> Seen:
        """Compare what a receiver got with what arrived before, the victim's report first."""
        places = {report: place for place, report in enumerate(arrived)}
        size = len(arrived[0])
        batches = {blob: split_every(blob, size) for _, blob in receiver.delivered}
        found = [[places.get(report, -1) for report in batch] for batch in batches.values()]
        added = [[each for each in batch if each not in places] for batch in batches.values()]
        return Seen(
            times=tuple(each.count(0) for each in found),
            noise=np.array([self._counts(each) for each in added]),
            order=np.array(found[-1], dtype=np.int64),
            refused=refused,
        )

    def _counts(self, sealed: Layers) -> NDArray[np.int64]:
        """Open reports, of layers as well, and count those of each item."""
        if sealed and len(sealed[0]) == self.task.sent_report_bytes:
            context = layer_context(self.digest, 1)
            sealed = [self.second_key.open(layer, context) for layer in sealed]
        opener = self.analyzer_key.opener(report_context(self.digest))
        plain = b"".join(opener(report) or b"" for report in sealed)
        items = np.frombuffer(plain, PLAIN_REPORT)["item"].astype(np.int64)
        return np.bincount(items, minlength=self.task.domain_size)

    async def behind_relay(self, relay_type: type[HonestRelay], *deliveries: Layers) -> Seen:
        """Deliver layers to an honest relay, several times, as a dishonest first shuffler."""
        relay = relay_type(
            self.path / "second",
            signed=self.signed,
            publisher=self.analyzer,
            identity=self.second,
            key=self.second_key,
        )
        relay.analyzer = _Receiver(self.signed, self.analyzer)
        filling = self.sealed(self.task.hop(0).expected_dummies(self.task.domain_size))
        await relay.start()
        refused, context = 0, layer_context(self.digest, 1)
        try:
            await relay.collected()
            for number, layers in enumerate(deliveries):
                if number:
                    await relay.again()
                try:
                    await relay.take([*layers, *filling], len(layers))
                except ConflictError:
                    refused += 1
        finally:
            relay.store.close()
        arrived = dict.fromkeys(layer for layers in deliveries for layer in [*layers, *filling])
        inner = [self.second_key.open(layer, context) for layer in arrived]
        return self._seen(relay.analyzer, inner, refused)

    async def before_relay(
        self,
        shuffler_type: Callable[..., HonestShuffler],
        *,
        aborts: int = 0,
        forget: int = 0,
    ) -> Seen:
        """
        Let an honest first shuffler deliver to a dishonest one.

        This one aborts the first deliveries once it has all parts, and `forget`s some layers when
        it commits to them.
        """
        receiver = _Receiver(self.signed, self.second)
        receiver.forget = forget
        identity = self.second.public_identity()
        shuffler = shuffler_type(
            self.path / "first",
            analyzer=MemoryAnalyzer(self.signed, self.analyzer),
            pinned=self.analyzer.public_identity(),
            identity=self.first,
            key=self.first_key,
            relay=ReceivingParty(name="relay", client=receiver, identity=identity),
        )
        await shuffler.start()
        try:
            for envelope in self.envelopes:
                await shuffler.collection.submit(self.digest, envelope)
            await shuffler.collected()
            for number in range(aborts + 1):
                receiver.lose_answers = number < aborts
                if number:
                    await shuffler.again()
                await shuffler.collection.close(self.digest)
                await shuffler.deliveries.advance()
        finally:
            shuffler.store.close()
        return self._seen(receiver, self.layers)

    async def asked_about(
        self, signer: SigningIdentity, store_type: type[DeviceStore] = DeviceStore
    ) -> tuple[int, list[int]]:
        """Show a device a tree of 2^40 leaves; return how often, and the buckets it asks for."""
        forger = _Forger(self, signer)
        store = store_type(self.path / f"{signer.public_identity().raw.hex()}.sqlite")
        agent = Agent(
            shuffler=forger,
            store=store,
            policy=policy_without_caps(
                identity=self.analyzer.public_identity(),
                shuffler_identity=self.first.public_identity(),
                relay_identity=self.second.public_identity(),
            ),
            several_persons=False,
            clock=forger.clock,
            rng=self.rng,
            secrets=PersonalSecrets(bytes(32)),
            check_seconds=_PAUSE,
        )
        try:
            await agent.contribute(self.digest, value_of(self.task, 0), "")
            for _ in range(4):
                await agent.monitor.check_due()
                forger.clock.seconds += 2 * _PAUSE
        finally:
            store.close()
        return forger.shown, forger.asked


class _Forger:
    """A dishonest first shuffler, which shows devices a tree of 2^40 leaves."""

    def __init__(self, run: ChainRun, signer: SigningIdentity) -> None:
        tree = Tree(FORGED_LEAVES, bytes(HASH_BYTES))
        batch = chain_batch_id(run.digest)
        self._run, self.asked, self.clock = run, list[int](), ManualClock()
        self._forged = BatchCommitment.sign(signer, run.digest, batch, tree, SALT)
        self.shown = 0

    async def fetch_task(self, _: TaskDigest) -> SignedTask:
        """Return the task."""
        return self._run.signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Acknowledge an envelope."""
        del token
        return sign_receipt(self._run.first, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Show the forged commitment, and note the bucket asked for."""
        del digest
        self.shown += prefix is None
        self.asked += [] if prefix is None else [prefix]
        return InclusionProof(commitment=self._forged, bucket=b"", path=[])
