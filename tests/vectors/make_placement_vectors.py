"""
Make tests/vectors/placement.json: where items of fixed tasks are placed.

Run as `python -m tests.vectors.make_placement_vectors`. If the file changes, devices and analyzers
of different versions no longer agree: do not.
"""

import json
from pathlib import Path

import numpy as np

from shuffledp.common.mechanisms.hashing.local_hashing import Placement

FILE = Path(__file__).with_name("placement.json")
CASES = ((9, b"\0" * 32), (2809, bytes(range(32))), (59049, b"\xff" * 32), (2**24, b"n" * 32))


def main() -> None:
    """Write the vectors."""
    vectors = []
    for size, nonce in CASES:
        items = np.unique(np.linspace(0, size - 1, 9).astype(np.int64))
        points = Placement(size, nonce)(items)
        vectors.append(
            {"size": size, "nonce": nonce.hex(), "items": items.tolist(), "points": points.tolist()}
        )
    FILE.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
