"""The secret seeds of batches that are being shuffled, in the state directory."""

from collections.abc import Collection
from typing import Final

from common.crypto.randomness import new_seed
from common.errors import DamagedStorageError
from common.messages.batch import BatchId
from common.runtime.state_directory import StateDirectory

_SEED_FILES: Final = "seed-*.key"
_MARKS: Final = "seed-*.used"
"""Files that say a seed was used and destroyed, until its batch is finished."""


class BatchSeeds:
    """
    Draws a batch's seed once, and destroys it before the permuted batch is delivered.

    The seed and the order of the stored groups determine the permutation, so that a part of the
    shuffle can be computed again. Only the process that closes batches holds seeds.
    """

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

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
        return self._state.secret(_name(_SEED_FILES, batch_id), new_seed)

    def destroy(self, batch_id: BatchId) -> None:
        """Destroy a batch's seed; none is drawn for it again. Idempotent."""
        if not self.was_used(batch_id):
            self._state.publish(_name(_MARKS, batch_id), "")
        self._state.destroy(_name(_SEED_FILES, batch_id))

    def was_used(self, batch_id: BatchId) -> bool:
        """Return whether an unfinished batch's seed was destroyed."""
        return (self._state.path / _name(_MARKS, batch_id)).exists()

    def forget(self, batch_id: BatchId) -> None:
        """Forget that a finished batch had a seed. Idempotent."""
        (self._state.path / _name(_MARKS, batch_id)).unlink(missing_ok=True)

    def sweep(self, needed: Collection[BatchId], unfinished: Collection[BatchId]) -> None:
        """
        Destroy all seeds but those of batches still to be shuffled. Run at start.

        `unfinished` are those `needed`, and batches still to be delivered.
        """
        kept = {_name(_SEED_FILES, batch_id) for batch_id in needed}
        for name in self._state.names(_SEED_FILES):
            if name not in kept:
                self.destroy(_batch_of(name))
        marks = {_name(_MARKS, batch_id) for batch_id in unfinished}
        for name in self._state.names(_MARKS):
            if name not in marks:
                (self._state.path / name).unlink()


def _name(pattern: str, batch_id: BatchId) -> str:
    return pattern.replace("*", batch_id.hex())


def _batch_of(name: str) -> BatchId:
    return BatchId(bytes.fromhex(name.removeprefix("seed-").removesuffix(".key")))
