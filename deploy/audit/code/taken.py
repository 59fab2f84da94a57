"""How many random bits were taken from a generator."""

from typing import Any

import numpy as np


def bits_taken(source: np.random.Philox) -> int:
    """Give how many bits a new generator has given: Philox counts its blocks of four words."""
    state: Any = source.state
    blocks = int(state["state"]["counter"][0])
    return 64 * (4 * blocks - (4 - int(state["buffer_pos"])))
