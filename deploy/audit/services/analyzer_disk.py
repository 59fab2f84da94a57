"""The analyzer's disk: sealed reports until their result is released, and nothing opened, ever."""

from collections.abc import Iterator, Mapping
from typing import Final

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.raw_bytes import first_bytes, hashed, kinds_found, written
from deploy.audit.services.look import secret_ways
from deploy.audit.services.record import Record
from deploy.audit.services.views import Views

_MOMENTS: Final = frozenset({"started", "collecting", "delivering", "staged", "over", "stopped"})
_RELEASED: Final = ("over", "stopped")
_RUN: Final = 64
"""Opened reports that are looked for together: so many stand nowhere in one order by chance."""
_LONG: Final = 8
"""Bytes from which on a single report is looked for, if they are as many different ones."""


def finding(record: Record, views: Mapping[str, Views]) -> Finding:
    """Search copies of the analyzer's files, made at six moments."""
    checks, looks = Checks(), [one for one in record.looks if one.party == "analyzer"]
    moments = {one.moment for one in looks}
    checks.must("the analyzer's files were read at six moments", moments >= _MOMENTS)
    answers = [answer for one in record.collections for answer in one.answers]
    reports = [report for one in answers for report in one.sealed]
    opened = [run for view in views.values() for run in _runs(view.analyzer.opened)]
    most = max((len(view.analyzer.opened) for view in views.values()), default=0)
    # Of fewer a run says nothing: few short reports stand somewhere by chance.
    checks.must("opened reports were known to look for", bool(opened) or most < _RUN)
    never = {
        "submission": [way for one in answers for way in first_bytes(one.envelope)],
        "hash of a submission": [way for one in answers for way in hashed(one.envelope)],
        "submission id": [way for one in answers for way in written(one.submission_id)],
        "hash of a report": [way for one in reports for way in hashed(one)],
        "opened report": opened,
        "private key": secret_ways(record.looks),
    }
    released = {"sealed report": [way for one in reports for way in first_bytes(one)]}
    for seen in looks:
        wanted = never | (released if seen.moment in _RELEASED else {})
        there = kinds_found(wanted, b"\n".join(seen.files.values()))
        for kind in wanted:
            checks.must(f"no {kind} lies on the analyzer's disk, {seen.moment}", kind not in there)
    checks.must(
        "sealed reports were staged, and seen", any(bool(one.staged) for one in record.collections)
    )
    checks.must(
        "no report stays staged once its result is released",
        not any(one.left_staged for one in record.collections if one.result is not None),
    )
    return checks.finding(
        scenario="services",
        title="The analyzer's disk",
        heading="anonymity",
        coalition="whoever takes the analyzer's disk",
        sentence=(
            "No submission, no run of opened reports and no private key was found on the "
            f"analyzer's disk at any of {len(moments)} moments; once results were released no "
            "sealed report was found there either, nor a hash of one."
        ),
        trials=sum(len(seen.files) for seen in looks),
    )


def _runs(opened: tuple[bytes | None, ...]) -> Iterator[bytes]:
    """Give opened reports as a file would hold them: in their order, and the long ones alone."""
    texts = [text for text in opened if text is not None]
    for start in range(0, len(texts) - _RUN + 1, _RUN):
        run = texts[start : start + _RUN]
        if len(set(run)) > 1:
            yield b"".join(run)
    for text in texts:
        if len(set(text)) >= _LONG:
            yield from written(text)
