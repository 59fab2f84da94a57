"""How many random bits something takes from the generator that it is handed."""

from collections.abc import Callable
from typing import Any

import numpy as np


def bits_taken(draw: Callable[[np.random.Generator], object], key: int = 3) -> int:
    """Give how many bits a call takes: Philox counts its blocks of four words."""
    source = np.random.Philox(key=key)
    draw(np.random.Generator(source))
    state: Any = source.state
    blocks = int(state["state"]["counter"][0])
    return 64 * (4 * blocks - (4 - int(state["buffer_pos"])))
