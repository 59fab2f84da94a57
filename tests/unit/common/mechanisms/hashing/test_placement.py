import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.mechanisms.hashing.placement import Placement

_VECTORS = json.loads(
    (Path(__file__).parents[4] / "vectors" / "placement.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", _VECTORS, ids=lambda case: f"size {case['size']}")
def test_items_are_placed_as_the_vectors_say(case: dict[str, Any]) -> None:
    """Devices and analyzers of all versions and platforms must agree."""
    place = Placement(case["size"], bytes.fromhex(case["nonce"]))

    assert case["points"] == place(np.array(case["items"])).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000, 2809])
def test_placement_is_a_permutation(size: int) -> None:
    """No two items share a point."""
    points = Placement(size, b"n" * 32)(np.arange(size))

    assert list(range(size)) == sorted(points.tolist())


def test_another_nonce_gives_another_placement() -> None:
    """Tasks differ in where they place items."""
    items = np.arange(1000)
    one, other = Placement(1000, b"a" * 32)(items), Placement(1000, b"b" * 32)(items)

    assert (one == other).mean() < 0.05


def test_neighbours_are_scattered() -> None:
    """Consecutive items do not stay consecutive."""
    points = Placement(2809, b"n" * 32)(np.arange(915))

    assert (np.abs(np.diff(points)) == 1).mean() < 0.05
