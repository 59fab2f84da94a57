"""
Measured costs of submissions and reports: the constants of the capacity model.

Times are in openings. One opening is the time in which one core opens a sealed report of the
default suite; machines differ mostly in this time. `make bench` measures each cost again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

OPENING_RATE: Final = 14_000.0
"""Reports that one core of the measured machine opens per second (bench_capacity)."""


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """One cost, its unit and its source."""

    value: float
    unit: str
    bench: str
    """The benchmark in tests/benchmarks that measures it; empty if none does yet."""
    origin: str = ""
    """Where a value comes from that the benchmark has not measured on the final code."""


_DEVICE: Final = "openings per submission of a device"
_RELAYED: Final = "openings per relayed submission"
_REPORT: Final = "openings per report"
_STORED: Final = "bytes per submission"
_STAND_IN: Final = "measured on a stand-in for the analyzer's parts"
_PROTOTYPE: Final = "prototype on PostgreSQL 15, at 65 µs per opening"
_STREAM: Final = "earlier delivery in one call, at 65 µs per opening"

COSTS: Final[Mapping[str, MeasuredCost]] = MappingProxyType(
    {
        "device": MeasuredCost(45.4, _DEVICE, "bench_capacity"),
        "relay": MeasuredCost(0.106, _RELAYED, "bench_capacity"),
        "relay envelope": MeasuredCost(1.0, _RELAYED, "bench_capacity"),
        "device store": MeasuredCost(0.71, _DEVICE, "", _PROTOTYPE),
        "relay store": MeasuredCost(0.15, _RELAYED, "", _PROTOTYPE),
        "throw": MeasuredCost(0.009, _REPORT, "bench_capacity"),
        "permute": MeasuredCost(0.014, _REPORT, "bench_capacity"),
        "prove": MeasuredCost(0.040, _REPORT, "bench_capacity"),
        "send": MeasuredCost(0.063, _REPORT, "", _STREAM),
        "receive": MeasuredCost(0.049, _REPORT, "", _STREAM),
        "split": MeasuredCost(0.050, _REPORT, "bench_capacity", _STAND_IN),
        "merge": MeasuredCost(0.012, _REPORT, "bench_capacity", _STAND_IN),
        "open": MeasuredCost(1.05, _REPORT, "bench_capacity", _STAND_IN),
        "hybrid opening": MeasuredCost(1.72, "openings per post-quantum opening", "bench_sealing"),
        "engine": MeasuredCost(1.14, "times the work without an engine", "", "prototype on Dask"),
        "connection": MeasuredCost(7045, "bytes per connection", "bench_capacity"),
        "connection memory": MeasuredCost(
            75e3, "bytes per open connection", "", "150 MB for 2,000 connections"
        ),
        "process memory": MeasuredCost(110e6, "bytes per process", "bench_capacity"),
        "SQLite row": MeasuredCost(39, _STORED, "", "159 bytes with two reports of 60"),
        "SQLite memory": MeasuredCost(16, _STORED, "", "length of an entry in memory"),
        "PostgreSQL row": MeasuredCost(169, _STORED, "", _PROTOTYPE),
        "PostgreSQL memory": MeasuredCost(76, _STORED, "", "index of the prototype"),
        "proof": MeasuredCost(32.2, "bytes per report", "", "32 per leaf, 36 per bucket"),
    }
)
