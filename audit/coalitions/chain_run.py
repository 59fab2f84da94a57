"""
The honest one of two shufflers, run against the other, which sides with the analyzer.

The honest one is the deployed core on its own files. The dishonest one knows all reports but one.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.analyzer.task_builder import complete
from shuffledp.audit.families.family import NotCoveredError
from shuffledp.audit.harness import party_cores
from shuffledp.audit.harness.in_process_run import Device
from shuffledp.audit.harness.party_cores import Recipient
from shuffledp.audit.harness.tasks import reduced_draft
from shuffledp.audit.scenario import AuditSubject
from shuffledp.audit.statistics import TEST_LEVEL, p_rank, p_rank_sum
from shuffledp.common.crypto import hpke, signing
from shuffledp.common.crypto.signing import KeyUse, SignedTask, SigningIdentity
from shuffledp.common.errors import ConflictError
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import BatchManifest, chain_batch_id
from shuffledp.common.messages.inclusion_proof import BatchCommitment, InclusionProof, Tree
from shuffledp.common.messages.submission import PLAIN_REPORT, plain_reports, split_submission
from shuffledp.common.task.sealing import report_sealer
from shuffledp.common.task.task import NONCE_BYTES
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.tasks.value_parser import value_of
from shuffledp.shuffler.delivery_client import ReceivingParty
from shuffledp.user_agent.clients import Shuffler
from shuffledp.user_agent.contribution import Contributor

Layers = list[bytes]
_MAX_REPORTS: Final = 2500
_USERS: Final = (16, 64)
_MORE_USERS: Final = 8
_FORGED: Final = Tree(2**40, bytes(inclusion_proof.HASH_BYTES))


class Seen(NamedTuple):
    """What the dishonest shuffler and the analyzer see of all that the honest shuffler sent."""

    hop: int
    """Place of the honest shuffler."""
    times: tuple[int, ...] = (1,)
    """How often the victim's report is in each of the different batches."""
    noise: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    """How many reports the honest shuffler added of each item, to each batch."""
    known: bool = False
    """Whether the order of the last batch shows the victim's report."""
    refused: int = 0
    """Deliveries that the honest shuffler refused."""


class ChainRun(Shuffler):
    """
    A published task with two shufflers, and the sealed layers of its users, the victim first.

    To devices, it is the dishonest first shuffler.
    """

    def __init__(self, path: Path, subject: AuditSubject, rng: Generator) -> None:
        """Reduce the task to a few users; `path`: an empty directory."""
        self.path, self.rng, self.ports = path, rng, subject.ports
        if len(subject.chain.views) > 1:
            raise NotCoveredError(f"{subject.chain.mechanism.name} with two shufflers")
        draft = reduced_draft(subject.chain, most_reports=_MAX_REPORTS, n_users=_USERS)
        if draft is None:
            raise ValueError("no small batch of this task has a finite guarantee")
        self.analyzer, self.first, self.second = (SigningIdentity.generate() for _ in range(3))
        keys = [hpke.HpkePrivateKey.generate(draft.suite) for _ in range(3)]
        self._opens_reports, self._opens_envelopes, self._opens_layers = keys
        analyzer, first, second = (key.public_key() for key in keys)
        layers = signing.signed_key(self.second, KeyUse.LAYERS, second, MAX_UNIX_TIME)
        draft = replace(
            draft,
            shuffler_key=signing.signed_key(self.first, KeyUse.ENVELOPES, first, MAX_UNIX_TIME),
            relay=draft.relay and replace(draft.relay, key=layers),
        )
        self.task = complete(draft, analyzer_key=analyzer.raw, nonce=rng.bytes(NONCE_BYTES))
        self.signed: SignedTask = self.analyzer.sign(self.task.to_bytes())
        self.digest: TaskDigest = self.signed.digest()
        contributor = Contributor(self.task, self.digest)
        others = rng.integers(0, self.task.domain_size, draft.n_min + _MORE_USERS - 1).tolist()
        values = [value_of(self.task, item) for item in [0, *others]]
        self.envelopes = [contributor.prepare(value, rng).envelope for value in values]
        context = hpke.envelope_context(self.digest)
        opened = [self._opens_envelopes.open(each, context) for each in self.envelopes]
        self.layers: Layers = [split_submission(submission)[1] for submission in opened]
        self._common: Any = {
            "pinned": self.analyzer.public_identity(),
            "executor": self.ports.shuffler_executor(party_cores.InlineExecutor()),
        }

    def sealed(self, count: int) -> Layers:
        """Seal reports of random items, which the dishonest first shuffler knows."""
        items = self.rng.integers(0, self.task.domain_size, count)
        seal = report_sealer(self.task, self.digest)
        return [seal(report.tobytes()) for report in plain_reports(items)]

    async def behind_relay(self, *deliveries: Layers) -> Seen:
        """Deliver layers to an honest relay, several times, as a dishonest first shuffler."""
        folder, receiver = Path(mkdtemp(dir=self.path)), Recipient(self.signed, self.analyzer)
        own: Any = {"identity": self.second, "key": self._opens_layers, **self._common}
        relay = party_cores.InProcessRelay(folder, analyzer=receiver, **own)
        await relay.start()
        filling = self.sealed(self.task.hop(0).expected_dummies)

        async def deliver(layers: Layers) -> None:
            manifest = BatchManifest(
                task_digest=self.digest,
                batch_id=chain_batch_id(self.digest),
                n_users=len(layers),
                n_reports=len(layers) + len(filling),
                by_length=(len(layers),),
            )
            await relay.deliver_parts(manifest, [*layers, *filling])

        refused = await self._run(relay, [partial(deliver, layers) for layers in deliveries])
        arrived = [*dict.fromkeys(chain(*deliveries, filling))]
        return self._seen(1, receiver, self._inside(arrived), refused)

    async def before_relay(self, aborts: int = 0, forget: int = 0) -> Seen:
        """Deliver to a relay that aborts at the end of deliveries, and commits to fewer layers."""
        identity, receiver = self.second.public_identity(), Recipient(self.signed, self.second)
        receiver.forget = forget
        shuffler = party_cores.InProcessShuffler(
            Path(mkdtemp(dir=self.path)),
            analyzer=Recipient(self.signed, self.analyzer),
            identity=self.first,
            key=self._opens_envelopes,
            relay=ReceivingParty(name="relay", client=receiver, identity=identity),
            **self._common,
        )
        await shuffler.start()
        for envelope in self.envelopes:
            await shuffler.collection.submit(self.digest, envelope)

        async def deliver(number: int) -> None:
            receiver.lose_answers = number < aborts
            await shuffler.collection.close(self.digest)

        sent = [partial(deliver, number) for number in range(aborts + 1)]
        return self._seen(0, receiver, self.layers, await self._run(shuffler, sent))

    async def _run(
        self,
        party: party_cores.InProcessRelay | party_cores.InProcessShuffler,
        deliveries: Sequence[Callable[[], Awaitable[None]]],
    ) -> int:
        """Let an honest shuffler take and make deliveries; return how many it refused."""
        refused = 0
        try:
            for number, deliver in enumerate(deliveries):
                await self.ports.before_delivery(party, number)
                try:
                    await deliver()
                    await party.deliveries.advance()
                except ConflictError:
                    refused += 1
        finally:
            party.store.close()
        return refused

    def _seen(self, hop: int, receiver: Recipient, arrived: Layers, refused: int) -> Seen:
        """Compare what a receiver got with what arrived before, the victim's report first."""
        places = {report: place for place, report in enumerate(arrived)}
        blobs = dict.fromkeys(blob for _, blob in receiver.delivered)
        batches = [hpke.split_every(blob, len(arrived[0])) for blob in blobs]
        found = [[places.get(report, -1) for report in batch] for batch in batches]
        added = [[each for each in batch if each not in places] for batch in batches]
        order = np.array(found[-1])
        users = order >= 0
        return Seen(
            hop=hop,
            times=tuple(each.count(0) for each in found),
            noise=np.concatenate([self._counts(each) for each in added]),
            known=min(p_rank(order[users]), p_rank_sum(users)) < TEST_LEVEL,
            refused=refused,
        )

    def _inside(self, layers: Layers) -> Layers:
        context = hpke.layer_context(self.digest, 1)
        return [self._opens_layers.open(each, context) for each in layers]

    def _counts(self, sealed: Layers) -> NDArray[np.int64]:
        """Open reports, of layers as well, and count those of each item."""
        if sealed and len(sealed[0]) == self.task.sent_report_bytes:
            sealed = self._inside(sealed)
        opener = self._opens_reports.opener(hpke.report_context(self.digest))
        plain = b"".join(opener(report) or b"" for report in sealed)
        items = np.frombuffer(plain, PLAIN_REPORT)["item"].astype(np.int64)
        return np.bincount(items, minlength=self.task.domain_size)

    # --- a device's shuffler, which shows it a tree of 2^40 leaves

    async def asked_about(self, signer: SigningIdentity) -> list[int | None]:
        """Show a device the tree; return the buckets that it asks for, None for the tree alone."""
        self._signer, self._asked = signer, list[int | None]()
        store = self.ports.device_store(self.path / f"{signer.public_identity().raw.hex()}.sqlite")
        pinned = {
            "analyzer_identity": self.analyzer.public_identity(),
            "shuffler_identity": self.first.public_identity(),
            "relay_identity": self.second.public_identity(),
        }
        device = Device(pinned, shuffler=self, store=store, rng=self.rng)
        with closing(store):
            await device.contribute(self.digest, value_of(self.task, 0), "person")
            await device.check(4)
        return self._asked

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        return self.signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        return signing.sign_receipt(self.first, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Show the forged commitment, and note the bucket asked for."""
        self._asked.append(prefix)
        batch, salt = chain_batch_id(digest), bytes(inclusion_proof.SALT_BYTES)
        forged = BatchCommitment.sign(self._signer, digest, batch, _FORGED, salt)
        return InclusionProof(commitment=forged, bucket=b"", path=[])
