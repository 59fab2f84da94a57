"""JSON that every parser reads."""

import json
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

from shuffledp.deploy.terminal.json_output import dumps, print_json


@dataclass
class _Figures:
    epsilon: float
    pair: tuple[float, ...]


_VALUE: Final = {
    "figures": [_Figures(epsilon=math.inf, pair=(1.0, -math.inf))],
    "numpy": np.float64(math.nan),
    "count": np.int64(3),
    "digest": b"\x0a\xff",
    "array": np.array([0.5, math.inf]),
}


def test_infinity_is_text_and_nan_null_at_any_depth(capsys: pytest.CaptureFixture[str]) -> None:
    """In dataclasses, tuples and numbers of numpy; bytes are hexadecimal."""
    expected = {
        "figures": [{"epsilon": "inf", "pair": [1.0, "-inf"]}],
        "numpy": None,
        "count": 3,
        "digest": "0aff",
        "array": [0.5, "inf"],
    }

    assert expected == json.loads(dumps(_VALUE))
    print_json(_VALUE)
    assert dumps(_VALUE) + "\n" == capsys.readouterr().out
