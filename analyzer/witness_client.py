"""Calls from the analyzer to the witnesses of its log."""

from dataclasses import dataclass
from typing import Final, Protocol

import grpc

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.access import CallKind
from shuffledp.common.runtime.rpc import SHORT_DEADLINE, open_channel, reply
from shuffledp.common.transparency.checkpoint import NoteKey, NoteSignature, SignedCheckpoint
from shuffledp.common.transparency.growth import Growth
from shuffledp.common.transparency.merkle import Path
from shuffledp.common.wire.added_entries import growth_to_wire
from shuffledp.common.wire.tasks import signed_task_to_wire
from shuffledp.common.wire.transparency import checkpoint_to_wire, cosignature_from_wire
from shuffledp.protos.shuffledp.v1 import log_pb2, log_pb2_grpc

_PREVIEW_DEADLINE: Final = 60.0
"""Timeout in seconds of a task's check before its publication."""


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


class CheckingLink(Protocol):
    """A checking witness of the log."""

    @property
    def key(self) -> NoteKey:
        """The witness's key."""

    async def add_entries(self, growth: Growth) -> tuple[int, NoteSignature | None]:
        """Show it entries, and ask for a cosignature; returns as `WitnessLink.add_checkpoint`."""

    async def check_task(self, signed: SignedTask) -> None:
        """Have it check a task; raise PeerRefusalError, with its sentence, if it refuses."""


@dataclass(frozen=True, slots=True)
class RemoteWitness:
    """
    A witness behind gRPC, perhaps a checking one.

    Its key's name starts with the party that its certificate names.
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
        async with self._channel() as channel:
            call = log_pb2_grpc.WitnessStub(channel).AddCheckpoint(request, timeout=SHORT_DEADLINE)
            return cosignature_from_wire(await reply(call, "the witness"))

    async def add_entries(self, growth: Growth) -> tuple[int, NoteSignature | None]:
        """Show it entries; see `CheckingLink`. Raises the errors of `reply`."""
        async with self._channel() as channel:
            stub, seconds = log_pb2_grpc.CheckingWitnessStub(channel), CallKind.CHECK.value.seconds
            call = stub.AddEntries(growth_to_wire(growth), timeout=seconds)
            return cosignature_from_wire(await reply(call, "the checking witness"))

    async def check_task(self, signed: SignedTask) -> None:
        """Have it check a task; see `CheckingLink`. Raises the errors of `reply`."""
        request = log_pb2.CheckTaskRequest(task=signed_task_to_wire(signed))
        async with self._channel() as channel:
            stub = log_pb2_grpc.CheckingWitnessStub(channel)
            await reply(stub.CheckTask(request, timeout=_PREVIEW_DEADLINE), "the checking witness")

    def _channel(self) -> grpc.aio.Channel:
        party, _, _ = self.key.name.partition("/")
        return open_channel(self.address, party, self.authority)
