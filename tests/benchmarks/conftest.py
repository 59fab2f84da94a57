"""
Benchmarks: `make bench` prints one JSON line per figure.

Ratios within one run are the figures that count, since machines are noisy: each benchmark times its
work beside the least that it could take.
"""

import json
import time
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture


def best_of(
    rounds: int, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the shortest of several timings, in seconds."""
    shortest = float("inf")
    for _ in range(rounds):
        started = clock()
        work()
        shortest = min(shortest, clock() - started)
    return shortest


Best = Callable[[int, Callable[[], object]], float]
"""Runs the work under test a number of times, and returns the shortest timing in seconds."""
Line = Callable[..., None]
"""Keeps figures beside the timing, under a name, and prints them as JSON."""


@pytest.fixture
def best(benchmark: BenchmarkFixture) -> Best:
    """Time the work under test, once a benchmark."""

    def measure(rounds: int, work: Callable[[], object]) -> float:
        benchmark.pedantic(work, rounds=rounds, iterations=1)  # type: ignore[no-untyped-call]
        if benchmark.stats is None:
            raise RuntimeError("benchmarks are disabled: nothing was timed")
        return float(benchmark.stats.stats.min)

    return measure


@pytest.fixture
def line(benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str]) -> Line:
    """Report figures."""

    def write(name: str, **figures: float | str) -> None:
        rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
        benchmark.extra_info.update(rounded)
        with capsys.disabled():
            print(json.dumps({"benchmark": name, **rounded}), flush=True)

    return write
