"""Best-of timing, and one JSON line a figure: ratios within one run, since machines are noisy."""

import json
import time
from collections.abc import Callable


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Give the shortest of several timings, in seconds."""
    shortest = float("inf")
    for _ in range(runs):
        started = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


def line(name: str, **figures: float | str) -> None:
    """Print one figure with what it was measured against."""
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps({"benchmark": name, **rounded}), flush=True)
