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
def test_placement_matches_the_vectors(case: dict[str, Any]) -> None:
    """On every version and platform."""
    place = Placement(case["size"], bytes.fromhex(case["nonce"]))

    assert case["points"] == place(np.array(case["items"])).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000, 2809])
def test_placement_is_a_permutation(size: int) -> None:
    """For powers of two and other sizes."""
    points = Placement(size, b"n" * 32)(np.arange(size))

    assert list(range(size)) == sorted(points.tolist())


