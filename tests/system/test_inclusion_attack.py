"""
The analyzer and the first shuffler of two try to learn which inner ciphertext is a device's.

They serve the device process whatever commitments they like, and record all that it sends.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from shuffledp.audit.harness.services import files_of
from shuffledp.common.crypto.hpke import HpkePrivateKey, envelope_context, layer_context
from shuffledp.common.crypto.signing import KeyUse, SignedTask, SigningIdentity, sign_receipt
from shuffledp.common.messages.batch import chain_batch_id
from shuffledp.common.messages.inclusion_proof import (
    BatchCommitment,
    InclusionProof,
    Tree,
    bits_for,
    leaf,
)
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.key_store import load_identity
from shuffledp.common.runtime.rpc import bind
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import Tls, development_files
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import prefix_from_wire, prefix_to_wire, proof_to_wire
from shuffledp.common.wire.tasks import signed_task_to_wire
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.shuffler.servicer import ShufflerServicer
from tests.support.chains import FLANKS, RELAY, chain
from tests.support.clients import contribute
from tests.support.keys import SHUFFLER, signed_key
from tests.support.leaves import SALT, GrownTree, some_leaves
from tests.support.relays import RELAY_KEY
from tests.support.services import Services
from tests.support.tasks import draft

_VALUES: Final = (3, 4, 3)
_SECONDS: Final = 0.005
"""Average pause of a device between two checks."""


class _FirstShuffler(ShufflerServicer):
    """Serves forged commitments one after the other, then an honest one; records each request."""

    def __init__(self, tls: Path) -> None:
        self.key = HpkePrivateKey.generate()
        self.signed: SignedTask
        self.forged: list[BatchCommitment] = []
        self.tree: GrownTree | None = None
        self.envelopes: list[bytes] = []
        self.sent: list[bytes] = []
        self.served: list[BatchCommitment] = []
        self._server, clock = grpc.aio.server(), SystemClock()
        shuffler_pb2_grpc.add_ShufflerServicer_to_server(self, self._server)
        identity = Tls.open(development_files(tls, "shuffler", clock), "shuffler", clock)
        self.address = bind(self._server, "127.0.0.1:0", identity)

    async def start(self) -> None:
        """Listen."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop."""
        await self._server.stop(None)

    async def FetchTask(self, _request: object, _context: object) -> Any:  # noqa: N802  # gRPC's name
        """Return the task."""
        return shuffler_pb2.FetchTaskResponse(task=signed_task_to_wire(self.signed))

    async def Submit(self, request: Any, _context: object) -> Any:  # noqa: N802  # gRPC's name
        """Keep an envelope."""
        self.envelopes.append(request.envelope)
        receipt = sign_receipt(SHUFFLER, TaskDigest(request.task_digest), request.envelope)
        return shuffler_pb2.SubmitResponse(receipt=receipt)

    async def GetInclusion(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        """Serve the next commitment, or a bucket of the last."""
        if (tree := self.tree) is None:
            return await context.abort(grpc.StatusCode.UNAVAILABLE, "later")
        self.sent.append(request.SerializeToString(deterministic=True))
        _, prefix = prefix_from_wire(request)
        if prefix is None:
            self.served.append(self.forged[min(len(self.served), len(self.forged) - 1)])
            return proof_to_wire(self.served[-1], 0)
        last, bucket, path = self.served[-1], bytes(32), [bytes(32)] * self.served[-1].bits
        proof = InclusionProof(commitment=last, bucket=bucket, path=path)
        if last.root == tree.root:
            proof = tree.prove(last, prefix)
        return proof_to_wire(proof, len(proof.bucket) // 32)


def _forge(signer: SigningIdentity, digest: TaskDigest, tree: Tree) -> BatchCommitment:
    return BatchCommitment.sign(signer, digest, chain_batch_id(digest), tree, SALT)


def _forged(digest: TaskDigest, analyzer: SigningIdentity, most: int) -> list[BatchCommitment]:
    """Forge commitments of many sizes, with the keys of everybody who could sign one."""
    found = []
    for n_leaves in (1, 512, most, most + 1, 2**40):
        tree = GrownTree(some_leaves(1)).tree
        tree.n_leaves, tree.bits = n_leaves, bits_for(n_leaves)
        found += [_forge(signer, digest, tree) for signer in (analyzer, SHUFFLER, RELAY)]
    return found


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    """Services, of which none is started."""
    made = Services(tmp_path)
    yield made
    await made.stop()


async def test_what_a_device_asks_follows_from_what_the_first_shuffler_knows(
    services: Services, tmp_path: Path
) -> None:
    """
    Its key opens the envelope as far as the layer, from which every byte sent is computed again.

    Three answers, two of them the same: nothing depends on what is inside the layer. Nothing of
    that is on the device's disk either. Trees of more leaves than a batch has are refused.
    """
    first = _FirstShuffler(tmp_path / "tls")
    await first.start()
    await services.start_analyzer()
    pins = {"shuffler_identity": SHUFFLER.public_identity().raw.hex(), "shuffler": first}
    vars(services).update(pins)
    await services.start_user_agent(
        relay_identity=RELAY.public_identity().raw.hex(),
        inclusion_check_seconds=_SECONDS,
        coalition_epsilon_cap=20.0,
    )
    layers_key = signed_key(RELAY_KEY.public_key(), RELAY, KeyUse.LAYERS)
    relay = RelayDraft(name="second.example", key=layers_key, noise=FLANKS)
    fields = chain() | {"relay": relay, "n_min": 5, "target_size": 10**5}
    async with services.operator() as operator:
        envelope_key = signed_key(first.key.public_key())
        first.signed, _ = await operator.publish_task(draft(envelope_key, **fields))
    digest, task = first.signed.digest(), Task.from_bytes(first.signed.task_bytes)
    analyzer = load_identity(StateDirectory.open(tmp_path / "analyzer"))
    forged = _forged(digest, analyzer, task.most_leaves)
    for number, value in enumerate(_VALUES):
        first.served.clear()
        first.sent.clear()
        first.tree = None
        await contribute(services, first.signed, f"person {number}", value)
        plain = first.key.open(first.envelopes[-1], envelope_context(digest))
        _, layer = split_submission(plain)
        tree = GrownTree([leaf(layer), *some_leaves(2000)])
        first.forged = [*forged, forged[0], forged[1], _forge(RELAY, digest, tree.tree)]
        first.tree = tree
        async with asyncio.timeout(20.0):
            while len(first.served) < len(first.forged) or len(first.sent) < len(
                _asked(first, layer)
            ):
                await asyncio.sleep(0.05)
        assert _asked(first, layer) == first.sent
        inside = RELAY_KEY.open(layer, layer_context(digest, 1))
        disk = b"".join(files_of(tmp_path / "user_agent").values())
        assert [] == [each for each in (inside, leaf(inside)) if each in disk]


def _asked(first: _FirstShuffler, layer: bytes) -> list[bytes]:
    """Compute a device's requests from the commitments that it got, and its layer."""
    digest, most = first.signed.digest(), Task.from_bytes(first.signed.task_bytes).most_leaves
    found = []
    for commitment in first.served:
        found.append(prefix_to_wire(digest, None))
        if commitment in first.forged[2::3] and commitment.n_leaves <= most:  # the relay's
            found.append(prefix_to_wire(digest, commitment.prefix_of(leaf(layer))))
    return [each.SerializeToString(deterministic=True) for each in found]
