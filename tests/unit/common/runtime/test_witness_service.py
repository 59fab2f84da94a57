"""A party's witness: what it stores before it answers, and what stops its start."""

import asyncio
import threading
from pathlib import Path

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import ProofError, SettingsError, StorageError
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import WitnessServicer
from shuffledp.common.transparency.checkpoint import (
    Checkpoint,
    NoteKey,
    NoteSignature,
    SignedCheckpoint,
)
from shuffledp.common.transparency.merkle import LogTree, leaf_hash
from shuffledp.common.wire.transparency import checkpoint_to_wire, cosignature_from_wire
from tests.support.transparency import LOG_IDENTITY, NOW, with_lines

_ANALYZER = LOG_IDENTITY.public_identity()
_LEAVES = [leaf_hash(bytes([number])) for number in range(9)]


def _head(size: int, *, first: int = 0) -> SignedCheckpoint:
    tree = LogTree(_LEAVES[first : first + size])
    origin = f"shuffledp/{_ANALYZER.raw.hex()}"
    return Checkpoint(origin=origin, size=size, root=tree.root).sign(LOG_IDENTITY)


def _witness(path: Path) -> WitnessServicer:
    return WitnessServicer(StateDirectory.open(path), _ANALYZER, "witness", ManualClock(NOW))


async def _cosign(
    witness: WitnessServicer, old_size: int, size: int, *, first: int = 0
) -> tuple[int, NoteSignature | None]:
    path = LogTree(_LEAVES[first : first + size]).prove_consistency(old_size)
    request = checkpoint_to_wire(old_size, path, _head(size, first=first))
    return cosignature_from_wire(await witness.AddCheckpoint(request, None))


async def test_a_witness_remembers_what_it_cosigned(tmp_path: Path) -> None:
    """After a restart it refuses a fork; a wrong size is answered with its own."""
    path = tmp_path / "state"
    size, line = await _cosign(_witness(path), 0, 3)
    key = NoteKey.parse((path / "witness.pub").read_text(encoding="ascii"))
    assert line is not None
    assert (3, NOW) == (size, with_lines(_head(3), line).signed_at(key))

    again = _witness(path)
    assert (3, None) == await _cosign(again, 0, 5)
    for fork in (3, 5):
        with pytest.raises(ProofError):
            await _cosign(again, 3, fork, first=1)
    for old_size, grown in ((3, 3), (3, 5), (5, 5)):
        assert (await _cosign(again, old_size, grown))[1] is not None


async def test_nothing_is_cosigned_that_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk it sends nothing, and goes on from the old state later."""
    witness = _witness(tmp_path / "state")

    def full(*_: object) -> None:
        raise StorageError("full")

    with monkeypatch.context() as patched:
        patched.setattr(StateDirectory, "publish", full)
        with pytest.raises(StorageError):
            await _cosign(witness, 0, 3)
    assert (await _cosign(witness, 0, 4, first=1))[1] is not None


async def test_a_write_that_outlives_its_call_overwrites_no_later_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a slow disk: once it ends, its head counts, and a fork of it is refused."""
    witness, publish, disk = _witness(tmp_path / "state"), StateDirectory.publish, threading.Event()

    def slow(*arguments: str) -> None:
        disk.wait()
        publish(*arguments)  # type: ignore[arg-type]  # self too

    with monkeypatch.context() as patched:
        patched.setattr(StateDirectory, "publish", slow)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_cosign(witness, 0, 2), 0.05)
        fork = asyncio.create_task(_cosign(witness, 0, 4, first=1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(fork), 0.05)
        disk.set()
        assert (2, None) == await fork
    assert (await _cosign(_witness(tmp_path / "state"), 2, 3))[1] is not None


async def test_a_witness_without_its_last_checkpoint_does_not_start(tmp_path: Path) -> None:
    """It could cosign a fork."""
    path = tmp_path / "state"
    await _cosign(_witness(path), 0, 3)
    [file] = path.glob("witness-*.checkpoint")
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(SettingsError, match=r"is missing.* remove witness\.key"):
        _witness(path)
    for damaged in (b"", kept[:-1], b"\xff", kept.replace(b"\n3\n", b"\n03\n")):
        file.write_bytes(damaged)
        with pytest.raises(SettingsError, match="is damaged"):
            _witness(path)
    file.write_bytes(kept)
    assert (3, None) == await _cosign(_witness(path), 0, 3)


async def test_checkpoints_of_another_log_are_refused(tmp_path: Path) -> None:
    """Anyone may call."""
    stranger = _head(3).checkpoint.sign(type(LOG_IDENTITY)(bytes(32)))
    request = checkpoint_to_wire(0, (), stranger)
    with pytest.raises(ProofError, match="not signed by the log"):
        await _witness(tmp_path / "state").AddCheckpoint(request, None)
