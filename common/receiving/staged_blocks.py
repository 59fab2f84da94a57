"""The blocks of delivered batches, sealed under a key for each batch until its release."""

import re
from collections.abc import Collection
from typing import Final

from common.crypto.batch_key import BatchKey
from common.messages.batch import BATCH_ID_BYTES, BatchId
from common.runtime.blocks import Blocks, SealedBlocks
from common.runtime.state_directory import StateDirectory

KEY_FILES: Final = "batch-*.key"
_FOLDERS: Final = re.compile(f"[0-9a-f]{{{2 * BATCH_ID_BYTES}}}")


class StagedBlocks:
    """
    Creates and destroys batches' staging keys in the state directory, and erases blocks.

    Keys are created in one thread: of two that create one, the second would replace the first's.
    """

    def __init__(self, state: StateDirectory, blocks: Blocks) -> None:
        self._state = state
        self.blocks = blocks

    def key(self, batch_id: BatchId) -> BatchKey:
        """Return a batch's staging key, created at the first call."""
        return BatchKey(self._state.secret(key_file(batch_id), BatchKey.generate))

    def open(self, batch_id: BatchId) -> SealedBlocks:
        """Open a batch's blocks."""
        return SealedBlocks(self.blocks, batch_id.hex(), self.key(batch_id))

    def erase(self, batch_id: BatchId) -> None:
        """Destroy a batch's staging key, then delete its blocks. Idempotent."""
        self._state.destroy(key_file(batch_id))
        self.blocks.delete(batch_id.hex())

    def sweep(self, kept: Collection[BatchId]) -> None:
        """Erase every batch that is not in `kept`. Run at start."""
        key_files = {key_file(batch_id) for batch_id in kept}
        for name in self._state.names(KEY_FILES):
            if name not in key_files:
                self._state.destroy(name)
        folders = {batch_id.hex() for batch_id in kept}
        for folder in self.blocks.folders():
            if folder not in folders and _FOLDERS.fullmatch(folder):
                self.blocks.delete(folder)


def key_file(batch_id: BatchId) -> str:
    """Return the name of a batch's key file in the state directory."""
    return KEY_FILES.replace("*", batch_id.hex())
