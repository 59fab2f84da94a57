"""Contents: what users sent is what was delivered, counted and estimated; nothing lost or added."""

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.mechanism import Mixture, Reports, is_null
from common.mechanisms.support import SupportCounting
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.views import Views

_ITEMS: Final = 200
"""Whose reports are counted one item at a time."""


def finding(record: Record, views: dict[str, Views]) -> Finding:
    """Follow every report from the device to the result."""
    checks, followed = Checks(), 0
    for collection in (record.first, record.again, record.early, record.marked):
        view = views.get(collection.name)
        checks.must(f"the {collection.name} batch was delivered", view is not None)
        checks.must(f"the {collection.name} batch was released", collection.result is not None)
        if view is not None:
            followed += len(view.analyzer.reports)
            _delivered(checks, collection, view)
            _counted(checks, collection, view)
    if "first" in views:
        _estimated(checks, record.first, views["first"])
    return checks.finding(
        scenario="services",
        title="Contents of the batch",
        heading="correctness",
        sentence=(
            f"All {followed} sealed reports that the analyzer received are those that users had "
            "sent, and what the protocol lets the shuffler add; it counted them as this audit "
            "does, and its estimate is what a plain computation gives."
        ),
        trials=followed,
    )


def refusals(collection: Collection, view: Views) -> dict[str, int]:
    """Count what the analyzer must refuse, by cause."""
    task, mechanism = collection.task, collection.mechanism
    unique = dict(zip(view.analyzer.reports, view.analyzer.opened, strict=True))
    texts = [text for text in unique.values() if text is not None]
    reports = np.frombuffer(b"".join(texts), dtype=mechanism.report_dtype)
    padding = is_null(reports)
    room = view.analyzer.manifest.n_users * (task.dummies.maximum - task.dummies.per_user)
    return {
        "repeated": len(view.analyzer.reports) - len(unique),
        "unreadable": len(unique) - len(texts),
        "malformed": int((~mechanism.valid(reports) & ~padding).sum())
        + max(0, int(padding.sum()) - room),
    }


def _delivered(checks: Checks, collection: Collection, view: Views) -> None:
    task, name = collection.task, f"in the {collection.name} batch"
    stored = Counter(one.envelope for one in view.shuffler.envelopes if one.stored)
    checks.must(
        f"every honest answer is stored, once, {name}",
        all(stored[answer.envelope] == 1 for answer in collection.answers),
    )
    sent = Counter(view.shuffler.reports)
    came = Counter(
        report
        for report, place in zip(view.analyzer.reports, view.shuffler.order, strict=True)
        if place >= 0
    )
    checks.must(f"no report is delivered more often than it was sent {name}", came <= sent)
    if task.shuffler.kept == 1:
        checks.must(f"no report is lost {name}", came == sent)
    if task.shuffler.law == "none":
        checks.must(f"no report is added {name}", bool((view.shuffler.order >= 0).all()))
    made = {
        sealed: plain
        for answer in collection.answers
        for sealed, plain in zip(answer.sealed, answer.reports, strict=True)
    }
    opened = zip(view.analyzer.reports, view.analyzer.opened, strict=True)
    checks.must(
        f"every report opens to what the device had made {name}",
        all(text == made[report] for report, text in opened if report in made),
    )
    manifest = view.analyzer.manifest
    checks.must(
        f"the manifest says how many users are {name}",
        manifest.n_users == len(view.shuffler.submissions),
    )
    checks.must(
        f"the manifest says how many reports are {name}",
        manifest.n_reports == len(view.analyzer.reports),
    )
    if collection.mixed is not None:
        checks.must(
            f"what was delivered is what the shuffler had permuted {name}",
            view.analyzer.chunks == collection.mixed.permuted,
        )
    checks.must(f"what was staged is what came {name}", view.analyzer.chunks == collection.staged)


def _counted(checks: Checks, collection: Collection, view: Views) -> None:
    result, name = collection.result, f"in the {collection.name} batch"
    if result is None:
        return
    cells = collection.mechanism.tally(view.analyzer.counted(collection.mechanism))
    checks.must(f"cells are counted as by this audit {name}", cells.tobytes() == collection.cells)
    checks.must(
        f"refused reports are counted as by this audit {name}",
        dict(result.refused) == refusals(collection, view),
    )
    checks.must(
        f"the result says how many users are {name}",
        result.n_users == len(view.shuffler.submissions),
    )
    checks.must(
        f"the result says how many reports are {name}",
        result.n_reports == len(view.analyzer.reports),
    )
    refined = result.histogram.refined
    checks.must(
        f"refined shares are a distribution {name}",
        bool((refined >= 0).all()) and abs(float(refined.sum()) - 1) < 1e-6,  # noqa: PLR2004
    )


def _estimated(checks: Checks, collection: Collection, view: Views) -> None:
    if collection.result is None:
        return
    size = collection.task.domain_size
    items = np.unique(np.linspace(0, size - 1, min(size, _ITEMS)).astype(np.int64))
    expected = plain_shares(collection, view.analyzer.counted(collection.mechanism), items)
    released = collection.result.histogram.frequencies
    checks.must("the estimate has a share for every item", len(released) == size)
    if len(released) == size:
        close = np.allclose(released[items], expected, rtol=1e-9, atol=1e-12)
        checks.must("the estimate is what a plain computation gives", bool(close))


def plain_shares(
    collection: Collection, reports: Reports, items: NDArray[np.int64]
) -> NDArray[np.float64]:
    """
    Estimate the shares of some items, of which no report was refused.

    Reports that support an item are counted one item at a time, and what noise and dummies add on
    average is taken off.
    """
    task, mechanism = collection.task, collection.mechanism
    n_users = len(collection.answers)
    kept, more = n_users * task.shuffler.kept, len(reports) - n_users
    item_mean, uniform = task.shuffler.moments()[0], 0
    if task.shuffler.idle and task.dummies.uniform:
        uniform = more
    elif task.shuffler.idle:
        item_mean = more / task.domain_size
    if not isinstance(mechanism, SupportCounting):  # its cells are no supports of items
        mixture = Mixture(n_real=n_users, n_dummies=uniform, item_mean=item_mean)
        return mechanism.debias(mechanism.tally(reports), mixture)[items]
    support = np.array([mechanism.supports(reports, int(item)).sum() for item in items])
    noise = kept * mechanism.q + uniform * mechanism.q_dummy + item_mean
    shares: NDArray[np.float64] = (support - noise) / (kept * (mechanism.p - mechanism.q))
    return shares
