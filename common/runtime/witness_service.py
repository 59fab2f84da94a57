"""
A party's witness of the analyzer's log, beside its own service or alone.

The last cosigned head is stored before the cosignature is sent. If that file were lost or restored
from an old copy, the witness could cosign a second history, so it then needs a new key.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Final

from shuffledp.common.crypto.signing import PublicIdentity, SigningIdentity
from shuffledp.common.errors import SettingsError, WireError
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.transparency import checkpoint
from shuffledp.common.transparency.merkle import EMPTY_ROOT, verify_consistency
from shuffledp.common.transparency.witness import Proof, Witness
from shuffledp.common.wire.transparency import checkpoint_from_wire, cosignature_to_wire
from shuffledp.protos.shuffledp.v1 import log_pb2, log_pb2_grpc

_KEY_FILE: Final = "witness.key"
_PUBLIC_FILE: Final = "witness.pub"
PLAIN: Final = "witness-*.checkpoint"
CHECKING: Final = "checking-*.checkpoint"
"""Files of the last cosigned heads, by kind of witness: no key serves witnesses of both kinds."""
_NEW: Final = "new"
"""In the name of such a file: no head of any log is cosigned yet."""
_NAME_DIGITS: Final = 16


def load_witness_key(
    state: StateDirectory, party: str, files: str = PLAIN
) -> tuple[SigningIdentity, checkpoint.NoteKey]:
    """
    Load or create a party's witness key, used for nothing else, and publish it in witness.pub.

    The key's name is `party/HEX`, where the party is the one that its TLS certificate names.
    """

    def make() -> bytes:
        state.publish(files.replace("*", _NEW), "")
        return SigningIdentity.generate().private_bytes()

    raw = state.secret(_KEY_FILE, make, public=_PUBLIC_FILE)
    identity = SigningIdentity(raw)
    public = identity.public_identity()
    name = f"{party}/{public.raw.hex()[:_NAME_DIGITS]}"
    key = checkpoint.NoteKey(name, checkpoint.SignatureType.COSIGNATURE, public)
    state.publish(_PUBLIC_FILE, key.to_text())
    return identity, key


class CosignedHead:
    """The last head of one log that a party's witness cosigned, in its state directory."""

    def __init__(
        self,
        state: StateDirectory,
        analyzer: PublicIdentity,
        party: str,
        clock: Clock,
        files: str = PLAIN,
    ) -> None:
        """
        Open a party's witness of an analyzer's log, and create its key on first start.

        Raises SettingsError if the last cosigned head of this log is missing or damaged.
        """
        identity, key = load_witness_key(state, party, files)
        self._witness = Witness(name=key.name, identity=identity, log=checkpoint.log_key(analyzer))
        self._state = state
        self._clock = clock
        self._files = files
        self._file = files.replace("*", analyzer.raw.hex()[:_NAME_DIGITS])
        self._last = self._read()
        self._cosigning = asyncio.Lock()
        self._storing: asyncio.Task[None] | None = None

    async def cosign(
        self,
        signed: checkpoint.SignedCheckpoint,
        old_size: int,
        proof: Proof,
        checks: Iterable[Awaitable[None]] = (),
    ) -> log_pb2.AddCheckpointResponse:
        """
        Cosign a checkpoint that continues the last one, or return the last one's size.

        Once the proof holds, `checks` are awaited, which may raise errors of their own.
        """
        async with self._cosigning:
            if self._storing is not None:  # its caller may have given up
                await asyncio.wait([self._storing])
            cosignature = self._witness.cosign(
                self._last, signed, old_size=old_size, proof=proof, seconds=int(self._clock.now())
            )
            last = signed.checkpoint
            for check in checks if cosignature is not None else ():
                await check
            if cosignature is not None and last != self._last:
                self._storing = asyncio.create_task(self._store(last))
                await asyncio.shield(self._storing)
            return cosignature_to_wire(self._last.size, cosignature)

    async def _store(self, last: checkpoint.Checkpoint) -> None:
        """Store a head. Never cancelled: its thread would overwrite a later head."""
        await asyncio.to_thread(self._state.publish, self._file, last.text().decode())
        self._state.destroy(self._files.replace("*", _NEW))
        self._last = last

    def _read(self) -> checkpoint.Checkpoint:
        path = self._state.path / self._file
        if not path.exists():
            if not self._state.names(self._files):
                raise SettingsError(
                    f"the last cosigned checkpoint, {self._files}, is missing, so that this "
                    f"witness could cosign a fork: remove {_KEY_FILE} and {_PUBLIC_FILE}, and "
                    "publish the new key"
                )
            return checkpoint.Checkpoint(origin=self._witness.log.name, size=0, root=EMPTY_ROOT)
        try:
            return checkpoint.Checkpoint.parse(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, WireError) as error:
            raise SettingsError(
                f"{path.name} is damaged: remove it, {_KEY_FILE} and {_PUBLIC_FILE}, and publish "
                "the new key"
            ) from error


class WitnessServicer(CosignedHead, log_pb2_grpc.WitnessServicer):
    """Cosigns the checkpoints of one log; anyone may send those that the log signed."""

    async def AddCheckpoint(  # noqa: N802  # named as in the .proto file
        self, request: log_pb2.AddCheckpointRequest, _context: object
    ) -> log_pb2.AddCheckpointResponse:
        old_size, consistency, signed = checkpoint_from_wire(request)
        return await self.cosign(signed, old_size, partial(verify_consistency, path=consistency))
