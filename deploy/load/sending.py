"""Options of how simulated users arrive and send."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from shuffledp.deploy.datasets.names import IPUMS_1940_CITY

Mode = Literal["users", "bulk"]
Pattern = Literal["steady", "burst"]
MIN_POSITIVE = 1e-6
"""Smallest value of a rate, duration or latency that must be positive."""
MAX_RATE = 1e9
MAX_SECONDS = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """
    How simulated users arrive and send.

    Options:
        dataset: Source of the values: a shipped data set, a file, or zipf:SIZE. Values of a file
            have the format of `shuffledp contribute`; without labels, edges or groups they are the
            items in their order.
        seed: Seed for values, behaviours and arrival times.
        mode: users: one connection per user. bulk: many users per call.
        rate: Users who arrive per second, whether or not the services keep up.
        concurrency: Without --rate: concurrent users, or concurrent bulk calls.  [64; 4]
        pattern: Arrivals with --rate. steady: at random. burst: many at once.
        burst: Users per burst, with --pattern burst.
        processes: Number of sending processes.
        patience: Seconds that a user retries while services do not answer.
        fetch_task: Each user fetches the task first.
    """

    dataset: str = IPUMS_1940_CITY
    seed: Annotated[int | None, typer.Option(min=0)] = None
    mode: Mode = "users"
    rate: Annotated[float | None, typer.Option(min=MIN_POSITIVE, max=MAX_RATE)] = None
    concurrency: Annotated[int | None, typer.Option(min=1, max=100_000)] = None
    pattern: Pattern = "steady"
    burst: Annotated[int, typer.Option(min=1)] = 100
    processes: Annotated[int, typer.Option(min=1, max=256)] = 1
    patience: Annotated[float, typer.Option(min=0, max=MAX_SECONDS)] = 120.0
    fetch_task: Annotated[bool, typer.Option("--fetch-task")] = False
