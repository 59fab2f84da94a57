"""
Whether a batch is one that an honest shuffler delivers: if not, it is kept and not estimated. Pure.

Two tests leave something to chance: how many sentinels a sampling shuffler kept, and their order.
Each accuses an honest shuffler with probability FALSE_ALARM at most, so that a batch is accused
with at most that where every report is kept, and with twice that where reports are sampled. The
other checks never accuse one. What none of them can see is a permutation that was drawn uniformly
and shown to somebody.
"""

from dataclasses import replace
from typing import Final

import scipy
from scipy.special import bdtr, bdtrc

from analyzer.sentinel_matching import SentinelMatches
from common.errors import SuspectBatchError, UnusableBatchError
from common.messages.batch import BatchManifest
from common.messages.result import Result
from common.task.task import Task

FALSE_ALARM: Final = 1e-9
"""The most that each test has for an honest shuffler, both its tails together."""
_FEWEST_IN_ORDER: Final = 13
"""2/13! is below FALSE_ALARM: from so many sentinels on, an order that was kept shows."""
_MOST_IN_ORDER: Final = 400
"""More sentinels than are needed; the exact test takes the cube of them."""


def check_batch(sightings: SentinelMatches, task: Task) -> None:
    """
    Judge a batch by its sentinels.

    A shuffler that keeps every report has lost or replaced a sentinel that is missing. One that
    samples drops sentinels at a known rate: too few, or too many, are what chance does not do, and
    half of FALSE_ALARM is for either.

    Raises:
        SuspectBatchError: A sentinel is missing, as many as there are is unlikely, or they stand in
            the order in which they were sent, or against it.
    """
    sent, there = sightings.reports()
    kept = task.shuffler.kept
    if kept == 1 and there < sent:
        raise SuspectBatchError(
            f"{sightings.n_missing} of {sightings.n_acknowledged} sentinels are missing; the "
            "shuffler had acknowledged all of them, and drops no report of this task",
            n_missing=sightings.n_missing,
        )
    if kept < 1 and sent:
        chance = min(bdtr(there, sent, kept), bdtrc(there - 1, sent, kept) if there else 1.0)
        if chance < FALSE_ALARM / 2:
            raise SuspectBatchError(
                f"{there} of {sent} reports of sentinels are there; of a shuffler that keeps "
                f"{kept:.4g} of all reports as few, or as many, are unlikelier than "
                f"{FALSE_ALARM / 2:g}"
            )
    _judge_order(sightings.order())


def _judge_order(places: list[int]) -> None:
    """Compare the order of delivery with that of sending: uniform, they have nothing in common."""
    places = places[:_MOST_IN_ORDER]
    if len(places) < _FEWEST_IN_ORDER:
        return
    tested = scipy.stats.kendalltau(range(len(places)), places, method="exact")
    if tested.pvalue < FALSE_ALARM:
        raise SuspectBatchError(
            f"{len(places)} sentinels stand in an order that is unlikelier than {FALSE_ALARM:g} "
            f"after a shuffle: Kendall's tau with the order of sending is {tested.statistic:.2f}"
        )


def exclude_sentinels(
    manifest: BatchManifest, sightings: SentinelMatches, task: Task
) -> BatchManifest:
    """
    Take the sentinels off a batch: what is left is what users sent.

    Raises:
        UnusableBatchError: Too few users are left.
    """
    n_sentinels = sightings.n_users(sampled=task.shuffler.kept < 1)
    n_users = manifest.n_users - n_sentinels
    if n_users < task.n_min:
        raise UnusableBatchError(
            f"the batch has {n_users} users beside {n_sentinels} sentinels; the task is released "
            f"from {task.n_min} users on"
        )
    # Further copies stay: they are refused as repeats, like those of any report.
    return replace(manifest, n_users=n_users, n_reports=manifest.n_reports - len(sightings.places))


def check_refusals(result: Result, most_refused_share: float) -> None:
    """
    Judge a batch by how many of its reports were refused.

    All devices of honest people, and an honest shuffler, make none; a device that is broken or
    lies spoils its own.

    Raises:
        SuspectBatchError: They are more than the operator allows.
    """
    refused = sum(result.refused.values())
    if refused > most_refused_share * result.n_reports:
        raise SuspectBatchError(
            f"{refused} of the batch's {result.n_reports} reports were refused; "
            f"most_refused_share is {most_refused_share}"
        )
