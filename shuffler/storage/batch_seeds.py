"""The secret seeds of batches that are being shuffled, in the state directory."""

from collections.abc import Collection
from typing import Final

from shuffledp.common.crypto.randomness import new_seed
from shuffledp.common.errors import DamagedStorageError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.runtime.state_directory import StateDirectory

_SEED_FILES: Final = "seed-*.key"
_MARKS: Final = "seed-*.used"
"""Files that say a seed was used and destroyed, until its batch is finished."""


class BatchSeeds:
    """
    Draws a batch's seed once, and destroys it before the permuted batch is delivered.

    The seed and the order of the stored groups determine the permutation, so that a part of the
    shuffle can be computed again. Only the process that closes batches holds seeds.
    """

    def __init__(self, state: StateDirectory, *, lasting: bool = False) -> None:
        """Keep seeds in a state directory; `lasting` marks outlive their batches."""
        self._state, self._lasting = state, lasting

    def of(self, batch_id: BatchId) -> bytes:
        """
        Return a batch's seed, drawn at the first call; it must not be logged.

        Raises DamagedStorageError if it was destroyed: a second permutation, or a second sample,
        of a batch that may have been delivered in part would break its guarantee.
        """
        if self.was_used(batch_id):
            raise DamagedStorageError(
                "the batch was permuted before: the store was set back to an earlier state"
            )
        return self._state.secret(self._file(_SEED_FILES, batch_id), new_seed)

    def destroy(self, batch_id: BatchId) -> None:
        """Destroy a batch's seed; none is drawn for it again. Idempotent."""
        self._destroy(batch_id.hex())

    def _destroy(self, name: str) -> None:
        mark = _MARKS.replace("*", name)
        if not (self._state.path / mark).exists():
            self._state.publish(mark, "")
        self._state.destroy(_SEED_FILES.replace("*", name))

    def was_used(self, batch_id: BatchId) -> bool:
        """Return whether an unfinished batch's seed was destroyed."""
        return (self._state.path / self._file(_MARKS, batch_id)).exists()

    def was_drawn(self, batch_id: BatchId) -> bool:
        """Return whether a batch has a seed, or had one."""
        return bool(self._state.names(f"seed-{batch_id.hex()}.*"))

    def forget(self, batch_id: BatchId) -> None:
        """Forget that a finished batch had a seed, unless marks last. Idempotent."""
        if not self._lasting:
            (self._state.path / self._file(_MARKS, batch_id)).unlink(missing_ok=True)

    def sweep(self, needed: Collection[BatchId], unfinished: Collection[BatchId]) -> None:
        """
        Destroy all seeds but those of batches still to be shuffled. Run at start.

        `unfinished` are those `needed`, and batches still to be delivered.
        """
        kept = {self._file(_SEED_FILES, batch_id) for batch_id in needed}
        for name in self._state.names(_SEED_FILES):
            if name not in kept:
                self._destroy(name.removeprefix("seed-").removesuffix(".key"))
        marks = {self._file(_MARKS, batch_id) for batch_id in unfinished}
        for name in () if self._lasting else self._state.names(_MARKS):
            if name not in marks:
                (self._state.path / name).unlink()

    @staticmethod
    def _file(pattern: str, batch_id: BatchId) -> str:
        return pattern.replace("*", batch_id.hex())
