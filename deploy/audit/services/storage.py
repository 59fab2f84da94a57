"""Storage: the shuffler's disk shows no report, and after the batch nobody can read it at all."""

import numpy as np

from common.crypto.merkle import HASH_BYTES
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.raw_bytes import first_bytes, found, hashed, kinds_found, written
from deploy.audit.services.disk import EXPIRED
from deploy.audit.services.look import secret_ways
from deploy.audit.services.record import Record

_MOMENTS = ("started", "collecting", "delivering", "staged", "over", "stopped")
_DELIVERED = ("first", "again", "early", "marked")


def finding(record: Record) -> Finding:
    """Search copies of the shuffler's files, made at six moments."""
    checks = Checks()
    checks.must("the shuffler's files were read at six moments", set(record.disks) >= {*_MOMENTS})
    looks = [one for one in record.looks if one.party == "shuffler"]
    answers = [answer for one in record.collections for answer in one.answers]
    reports = [report for one in answers for report in one.sealed]
    wanted = {
        "sealed report": [way for one in reports for way in first_bytes(one)],
        "envelope": [way for one in answers for way in first_bytes(one.envelope)],
        "submission id": [way for one in answers for way in written(one.submission_id)],
        "hash of a report": [way for one in reports for way in hashed(one)],
        "hash of an envelope": [way for one in answers for way in hashed(one.envelope)],
        "hash of a submission id": [way for one in answers for way in hashed(one.submission_id)],
        "private key": secret_ways(record.looks),
    }
    for seen in looks:
        there = kinds_found(wanted, b"\n".join(seen.files.values()))
        for what in wanted:
            checks.must(f"no {what} lies open on the disk, {seen.moment}", what not in there)
    _keys(checks, record)
    for moment in ("over", "stopped"):
        names = record.disks.get(moment, {})
        checks.must(
            f"no permuted batch is left, {moment}",
            not [n for n in names if n.startswith("batches/")],
        )
        checks.must(
            f"no folder of a batch is left, {moment}",
            not [
                name
                for seen in looks
                for name in seen.others
                if seen.moment == moment and name.startswith("batches/") and name != "batches/"
            ],
        )
        checks.must(
            f"hashes that an earlier run has kept for long enough are deleted, {moment}",
            not any(name.startswith(EXPIRED) for name in names),
        )
        for name, content in names.items():
            if name.endswith(".leaves"):
                checks.must("hashes that are kept for devices lie sorted", _sorted(content))
    checks.must("no submission is left in the shuffler's file", record.groups_left == 0)
    for collection in record.collections:
        expected = "erased" if collection.name in _DELIVERED else "expired"
        checks.must(
            f"the {collection.name} batch is {expected} at the end", collection.state == expected
        )
    return checks.finding(
        scenario="services",
        title="The shuffler's disk",
        heading="anonymity",
        coalition="whoever takes the shuffler's disk",
        sentence=(
            "No sealed report, submission or id of one lay open on the shuffler's disk at any of "
            f"{len(looks)} moments, nor its unkeyed hash, nor a private key; once a batch is "
            "delivered, or has expired, its rows, its order and its key are gone, and hashes that "
            "are kept for devices lie sorted, and those of an earlier run, which need not be kept "
            "any more, were deleted."
        ),
        trials=sum(len(files) for files in record.disks.values()),
    )


def _keys(checks: Checks, record: Record) -> None:
    """Look for the keys of batches: there while they are needed, and nowhere afterwards."""
    keys = [disk.key for one in record.collections for disk in (one.disk, one.mixed) if disk]
    checks.must("keys of batches were seen while they were needed", bool(keys))
    patterns = [way for key in set(keys) for way in written(key)]
    for moment, files in record.disks.items():
        lies_open = found(patterns, b"\n".join(files.values()))
        checks.must(f"no key of a batch lies open on the disk, {moment}", not lies_open)
    for moment in ("over", "stopped"):
        left = [
            name
            for name in record.disks.get(moment, {})
            if name.startswith("batch-") and name.endswith(".key")
        ]
        checks.must(f"no key of a batch is left, {moment}", not left)


def _sorted(leaves: bytes) -> bool:
    """Say whether hashes stand in the order of their bytes; what is before the first is a time."""
    rest = len(leaves) % HASH_BYTES
    count = (len(leaves) - rest) // HASH_BYTES
    heads = np.array(
        [int.from_bytes(leaves[rest + place * HASH_BYTES :][:7]) for place in range(count)],
        dtype=np.int64,
    )
    return bool((np.diff(heads) >= 0).all())
