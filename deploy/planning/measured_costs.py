"""
Measured costs of submissions and reports: the constants of the capacity model.

Processor time is in openings: the time in which one core opens a sealed report of the default
suite, which is what machines mostly differ in. Other costs are bytes. Values of `bench_capacity`
are medians of two to four runs with 200,000 reports; those of blocks, and of `bench_stores` with
81,000 submissions, are maxima.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_BENCH: Final = "bench_capacity"
_STORES: Final = "bench_stores, PostgreSQL 15"
_FORMAT: Final = "sealed report of a categorical task"
_KEPT: Final = "a hash, for the 30 days of keep_inclusion_days"


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """One cost, its unit, and the benchmark or other source of its value."""

    value: float
    unit: str
    source: str = _BENCH


_SUBMISSION: Final = "openings per submission"
_REPORT: Final = "openings per report"

COSTS: Final[Mapping[str, MeasuredCost]] = MappingProxyType(
    {
        "device": MeasuredCost(52, _SUBMISSION),
        "bulk": MeasuredCost(0.126, _SUBMISSION),
        "bulk opening": MeasuredCost(1.02, _SUBMISSION),
        "device row": MeasuredCost(0.57, _SUBMISSION, _STORES),
        "bulk row": MeasuredCost(0.115, _SUBMISSION, _STORES),
        "shuffle": MeasuredCost(0.012, _REPORT),
        "prove": MeasuredCost(0.04, _REPORT),
        "send": MeasuredCost(0.019, _REPORT),
        "receive": MeasuredCost(0.035, _REPORT),
        "count": MeasuredCost(1.08, _REPORT),
        "batch": MeasuredCost(12e3, "openings per batch"),
        "device bytes": MeasuredCost(7200, "bytes per submission"),
        "bulk bytes": MeasuredCost(187, "bytes per submission"),
        "row bytes": MeasuredCost(68, "bytes per submission, without its reports", _STORES),
        "index bytes": MeasuredCost(43, "bytes per submission", _STORES),
        "report bytes": MeasuredCost(60, "bytes per report", _FORMAT),
        "proof bytes": MeasuredCost(32 * 30, "bytes per report", _KEPT),
        "shuffler blocks": MeasuredCost(125, "bytes per report"),
        "analyzer blocks": MeasuredCost(240, "bytes per report"),
        "process memory": MeasuredCost(180e6, "bytes per process"),
    }
)
"""
Each cost by name. A `device` opens a connection of its own; `bulk` is a relay's call with many
submissions, whose envelopes workers open; a `row` is PostgreSQL's share. `send` and `receive` are
the coordinators' processor time; `shuffle`, `prove` and `count` are the workers'. `batch` is the
fixed time of a batch, mostly to start workers.
"""


def cost(name: str) -> float:
    """Return the value of a cost."""
    return COSTS[name].value
