"""
A party's witness of the analyzer's log, beside its own service or alone.

The last cosigned head is stored before the cosignature is sent. If that file were lost or restored
from an old copy, the witness could cosign a second history, so it then needs a new key.
"""

import asyncio
from typing import Final

from common.crypto.signing import PublicIdentity, SigningIdentity
from common.errors import SettingsError, WireError
from common.runtime.clock import Clock
from common.runtime.state_directory import StateDirectory
from common.transparency.checkpoint import Checkpoint, NoteKey, SignatureType, log_key
from common.transparency.merkle import EMPTY_ROOT
from common.transparency.witness import Witness
from common.wire.transparency import checkpoint_from_wire, cosignature_to_wire
from protos.shuffledp.v1 import log_pb2, log_pb2_grpc

_KEY_FILE: Final = "witness.key"
_PUBLIC_FILE: Final = "witness.pub"
_STATE_FILES: Final = "witness-*.checkpoint"
_NOTHING_COSIGNED: Final = "witness-new.checkpoint"
_NAME_DIGITS: Final = 16


def load_witness_key(state: StateDirectory, party: str) -> tuple[SigningIdentity, NoteKey]:
    """
    Load or create a party's witness key, used for nothing else, and publish it in witness.pub.

    The key's name is `party/HEX`, where the party is the one that its TLS certificate names.
    """

    def make() -> bytes:
        state.publish(_NOTHING_COSIGNED, "")
        return SigningIdentity.generate().private_bytes()

    raw = state.secret(_KEY_FILE, make, public=_PUBLIC_FILE)
    identity = SigningIdentity(raw)
    public = identity.public_identity()
    name = f"{party}/{public.raw.hex()[:_NAME_DIGITS]}"
    key = NoteKey(name, SignatureType.COSIGNATURE, public)
    state.publish(_PUBLIC_FILE, key.to_text())
    return identity, key


class WitnessServicer(log_pb2_grpc.WitnessServicer):
    """Cosigns the checkpoints of one log; anyone may send those that the log signed."""

    def __init__(
        self, state: StateDirectory, analyzer: PublicIdentity, party: str, clock: Clock
    ) -> None:
        """
        Open a party's witness of an analyzer's log, and create its key on first start.

        Raises SettingsError if the last cosigned head of this log is missing or damaged.
        """
        identity, key = load_witness_key(state, party)
        self._witness = Witness(name=key.name, identity=identity, log=log_key(analyzer))
        self._state = state
        self._clock = clock
        self._file = _STATE_FILES.replace("*", analyzer.raw.hex()[:_NAME_DIGITS])
        self._last = self._read()
        self._cosigning = asyncio.Lock()

    async def AddCheckpoint(  # noqa: N802  # named as in the .proto file
        self, request: log_pb2.AddCheckpointRequest, _context: object
    ) -> log_pb2.AddCheckpointResponse:
        """Cosign a checkpoint that continues the last one, or return the last one's size."""
        old_size, consistency, signed = checkpoint_from_wire(request)
        async with self._cosigning:
            cosignature = self._witness.cosign(
                self._last,
                signed,
                old_size=old_size,
                consistency=consistency,
                seconds=int(self._clock.now()),
            )
            last = signed.checkpoint
            if cosignature is not None and last != self._last:
                await asyncio.to_thread(self._state.publish, self._file, last.text().decode())
                self._state.destroy(_NOTHING_COSIGNED)
                self._last = last
            return cosignature_to_wire(self._last.size, cosignature)

    def _read(self) -> Checkpoint:
        path = self._state.path / self._file
        if not path.exists():
            if not self._state.names(_STATE_FILES):
                raise SettingsError(
                    f"the last cosigned checkpoint, {_STATE_FILES}, is missing, so that this "
                    f"witness could cosign a fork: remove {_KEY_FILE} and {_PUBLIC_FILE}, and "
                    "publish the new key"
                )
            return Checkpoint(origin=self._witness.log.name, size=0, root=EMPTY_ROOT)
        try:
            return Checkpoint.parse(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, WireError) as error:
            raise SettingsError(
                f"{path.name} is damaged: remove it, {_KEY_FILE} and {_PUBLIC_FILE}, and publish "
                "the new key"
            ) from error
