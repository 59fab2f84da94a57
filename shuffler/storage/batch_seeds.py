"""The secret seeds of batches that are being shuffled, in the state directory."""

from collections.abc import Collection
from typing import Final

from common.crypto.randomness import new_seed
from common.messages.batch import BatchId
from common.runtime.state_directory import StateDirectory

_SEED_FILES: Final = "seed-*.key"


class BatchSeeds:
    """
    Draws a batch's seed once, and destroys it before the permuted batch is delivered.

    The seed and the order of the stored groups determine the permutation, so that a part of the
    shuffle can be computed again. Only the process that closes batches holds seeds.
    """

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    def of(self, batch_id: BatchId) -> bytes:
        """Return a batch's seed, drawn at the first call; it must not be logged."""
        return self._state.secret(_seed_file(batch_id), new_seed)

    def destroy(self, batch_id: BatchId) -> None:
        """Destroy a batch's seed. Idempotent."""
        self._state.destroy(_seed_file(batch_id))

    def sweep(self, needed: Collection[BatchId]) -> None:
        """Destroy all seeds but those of batches still to be shuffled. Run at start."""
        kept = {_seed_file(batch_id) for batch_id in needed}
        for name in self._state.names(_SEED_FILES):
            if name not in kept:
                self._state.destroy(name)


def _seed_file(batch_id: BatchId) -> str:
    return _SEED_FILES.replace("*", batch_id.hex())
