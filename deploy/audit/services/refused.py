"""Devices and bindings: what a person's device sends once, and what nobody can make it send."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.fit import of_number
from deploy.audit.services.facts import must_hold, of_devices
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.views import received
from protos.shuffledp.v1 import shuffler_pb2


def finding(record: Record) -> Finding:
    """Look at retries, refusals, and seeds over two rounds."""
    checks = Checks()
    expected = of_devices(record.first.task)
    must_hold(checks, record.facts, expected)
    _retries(checks, record)
    _rounds(checks, record)
    _one_task(checks, record)
    return checks.finding(
        scenario="services",
        title="Devices, retries and tasks",
        heading="server disruption",
        coalition="shuffler+analyzer",
        sentence=(
            "A device that is asked again sends the same bytes, and draws anew for each task; it "
            "answered no task whose guarantee is stated 1 % too low, none over the caps that were "
            "tried, of another signer or long past its deadline; what it sealed for one task is "
            "refused under another."
        ),
        trials=len(expected),
    )


def _retries(checks: Checks, record: Record) -> None:
    first, persons = record.first, len(record.persons)
    made = {answer.envelope for answer in first.answers}
    came = [one for one in received(first.heard) if one.envelope in made]
    times = Counter(one.envelope for one in came)
    again = [envelope for envelope, count in times.items() if count > 1]
    checks.must("one answer was sent twice, and byte for byte the same", len(again) == 1)
    checks.must(
        "of a person who is asked twice, one answer is made",
        len(first.answers) == len(made) == len(times),
    )
    stored = sum(one.stored for one in came)
    checks.must("a repeat is no other user", stored == len(times))
    users = first.result.n_users if first.result else 0
    checks.must("everybody who is counted answered once", users == len(times))
    checks.must("each person's answer is among them", persons <= stored)


def _rounds(checks: Checks, record: Record) -> None:
    """Compare what the same person drew for two tasks."""
    ids = [answer.submission_id for one in record.collections for answer in one.answers]
    checks.must("no two answers have the same id", len(set(ids)) == len(ids))
    reports = [report for one in record.collections for a in one.answers for report in a.sealed]
    checks.must("no two sealed reports are the same", len(set(reports)) == len(reports))
    names = record.first.mechanism.report_dtype.names or ()
    if "seed" not in names:
        return
    one, other = (_seeds(collection) for collection in (record.first, record.again))
    pairs = list(zip(one, other, strict=False))
    same = sum(int(np.isin(first, second).sum()) for first, second in pairs)
    spec = record.first.task.mechanism
    seeds = float(spec.buckets) ** spec.digits if spec.name == "local-hashing" else 2.0**64
    # A seed of the first round is among some k of the second with probability 1 - (1 - 1/S)^k.
    mean = sum(
        len(first) * -np.expm1(len(second) * np.log1p(-1 / seeds)) for first, second in pairs
    )
    checks.test("seeds that a person draws in both of two rounds", of_number(same, float(mean)))


def _seeds(collection: Collection) -> list[NDArray[np.uint64]]:
    """Give the seeds of each user's reports, padding left out."""
    dtype, null = (
        collection.mechanism.report_dtype,
        b"\xff" * collection.task.mechanism.report_bytes,
    )
    return [
        np.frombuffer(b"".join(one for one in answer.reports if one != null), dtype=dtype)["seed"]
        for answer in collection.answers
    ]


def _one_task(checks: Checks, record: Record) -> None:
    """Look whether everybody is given the same task, and so the same keys."""
    for collection in record.collections:
        given = {
            shuffler_pb2.FetchTaskResponse.FromString(one.raw).task.task
            for one in collection.heard
            if one.method == "FetchTask" and not one.inward
        }
        checks.must(
            f"everybody is given the same bytes as the {collection.name} task",
            given <= {collection.signed.task_bytes},
        )
    digests = {one.digest for one in record.collections}
    checks.must(
        "tasks that differ have digests that differ", len(digests) == len(record.collections)
    )
