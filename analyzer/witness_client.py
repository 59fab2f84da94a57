"""Calls from the analyzer to the witnesses of its log."""

from dataclasses import dataclass
from typing import Protocol

from common.runtime.rpc import SHORT_DEADLINE, open_channel, reply
from common.transparency.checkpoint import NoteKey, NoteSignature, SignedCheckpoint
from common.transparency.merkle import Path
from common.wire.transparency import checkpoint_to_wire, cosignature_from_wire
from protos.shuffledp.v1 import log_pb2_grpc


class WitnessLink(Protocol):
    """A witness of the log."""

    @property
    def key(self) -> NoteKey:
        """The witness's key."""

    async def add_checkpoint(
        self, old_size: int, consistency: Path, signed: SignedCheckpoint
    ) -> tuple[int, NoteSignature | None]:
        """
        Ask for a cosignature.

        Returns the size of the witness's last checkpoint, and the cosignature, unverified; None if
        `old_size` was another size.
        """


@dataclass(frozen=True, slots=True)
class RemoteWitness:
    """
    A witness behind gRPC. Its key's name starts with the party that its certificate names.

    Each call opens a channel, since an old one would pause for minutes after a failure.
    """

    address: str
    key: NoteKey
    authority: bytes | None

    async def add_checkpoint(
        self, old_size: int, consistency: Path, signed: SignedCheckpoint
    ) -> tuple[int, NoteSignature | None]:
        """Ask for a cosignature; see `WitnessLink`. Raises the errors of `reply`."""
        request = checkpoint_to_wire(old_size, consistency, signed)
        party, _, _ = self.key.name.partition("/")
        async with open_channel(self.address, party, self.authority) as channel:
            call = log_pb2_grpc.WitnessStub(channel).AddCheckpoint(request, timeout=SHORT_DEADLINE)
            return cosignature_from_wire(await reply(call, "the witness"))
