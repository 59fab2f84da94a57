"""Write files of the shuffler's first version."""

from collections.abc import Iterable
from pathlib import Path

from common.crypto.batch_key import BatchKey


def write_former_batch(folder: Path, key: BatchKey, chunks: Iterable[bytes]) -> None:
    """Write a permuted batch: sealed records, each with its length."""
    folder.mkdir(parents=True)
    with (folder / "permuted").open("wb") as file:
        for number, chunk in enumerate(chunks):
            place = b"file" + (-1).to_bytes(4, "big", signed=True) + number.to_bytes(8)
            sealed = key.seal(chunk, place)
            file.write(len(sealed).to_bytes(4) + sealed)
