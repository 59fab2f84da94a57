"""Contents: what users sent is what was delivered, counted and estimated; nothing lost or added."""

from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_toeplitz

from analyzer.estimation.histogram import gather
from analyzer.finalize import mixture_of
from common.mechanisms.base import Reports, is_null
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.square_wave import SquareWave
from common.mechanisms.support import SupportCounting
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.laws.refinements import is_right
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.views import Views, together

_ITEMS: Final = 200
"""Whose reports are counted one item at a time."""
_ROUNDING: Final = 1e-7
"""Of a share; more than solving for many of them at once leaves."""


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
            _together(checks, collection, view)
    if "first" in views:
        _estimated(checks, record.first, views["first"])
        _refined(checks, record.first, views["first"])
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


def _together(checks: Checks, collection: Collection, view: Views) -> None:
    """Pool views of several, over what was really received: each sees what it must, and no more."""
    task, name = collection.task, f"in the {collection.name} batch"
    both, order = together(view.shuffler, view.analyzer), view.shuffler.order
    places = {one.submission_id: place for place, one in enumerate(view.shuffler.submissions)}
    linked = misplaced = lost = 0
    for answer in collection.answers:
        place = places.get(answer.submission_id, len(places))
        seen, made = Counter(both.of_sender(place)), Counter[bytes | None](answer.reports)
        linked += seen == made or (task.shuffler.kept < 1 and seen <= made)
        if answer.own_place is not None:
            at = np.flatnonzero(order == place * task.reports_per_user + answer.own_place).tolist()
            lost += not at
            misplaced += any(view.analyzer.opened[one] != answer.own for one in at)
    checks.must(
        f"shuffler and analyzer together link each user to what the device made {name}",
        linked == len(collection.answers) and (not lost or task.shuffler.kept < 1),
    )
    checks.must(f"each own report is where the device put it {name}", not misplaced)
    users = view.users(range(0, len(collection.answers), 2))
    left = together(view.analyzer, users).remaining_of(view.analyzer)
    known, came = view.everybody.sealed, set(view.analyzer.reports)
    others = view.users(range(1, len(collection.answers), 2)).sealed
    checks.must(
        f"analyzer and users together are left with the other users' reports {name}",
        left & known == others & came and left == came - users.sealed,
    )


def _counted(checks: Checks, collection: Collection, view: Views) -> None:
    result, name = collection.result, f"in the {collection.name} batch"
    if result is None:
        return
    reports = view.analyzer.counted(collection.mechanism)
    checks.must(f"cells are counted as by this audit {name}", _tallied(collection, reports))
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
        bool((refined >= 0).all()) and abs(float(refined.sum()) - 1) < 1e-6,  # noqa: PLR2004  # rounding
    )


def _estimated(checks: Checks, collection: Collection, view: Views) -> None:
    if collection.result is None:
        return
    size, items = collection.task.domain_size, _some_items(collection)
    expected = plain_shares(collection, view.analyzer.counted(collection.mechanism), items)
    released = collection.result.histogram.frequencies
    checks.must("the estimate has a share for every item", len(released) == size)
    if len(released) == size:
        off = np.abs(released[items] - expected) / np.maximum(1, np.abs(expected))
        checks.must("the estimate is what a plain computation gives", bool(off.max() < _ROUNDING))


def _refined(checks: Checks, collection: Collection, view: Views) -> None:
    """Refine what was counted once more, in the task's own way; nothing of it was refused."""
    if collection.result is None:
        return
    task, mechanism = collection.task, collection.mechanism
    reports = view.analyzer.counted(mechanism)
    padding = len(view.analyzer.reports) - len(reports)
    mixture = mixture_of(task, len(collection.answers), counted=len(reports), padding=padding)
    evidence = gather(mechanism, mechanism.tally(reports), mixture)
    checks.must(
        f"the histogram is refined by {task.refinement}, as its task says",
        is_right(task.refinement, evidence, collection.result.histogram.refined),
    )


def plain_shares(
    collection: Collection, reports: Reports, items: NDArray[np.int64]
) -> NDArray[np.float64]:
    """
    Estimate the shares of some items, of which no report was refused.

    Reports that support an item are counted one item at a time, and what noise and dummies add on
    average is taken off. Places on a line are fitted by least squares.

    Raises:
        TypeError: Nothing is known here of what the mechanism's reports say.
    """
    task, mechanism = collection.task, collection.mechanism
    n_users = len(collection.answers)
    kept, more = n_users * task.shuffler.kept, len(reports) - n_users
    item_mean, uniform = task.shuffler.moments()[0], 0
    if task.shuffler.idle and task.dummies.uniform:
        uniform = more
    elif task.shuffler.idle:
        item_mean = more / task.domain_size
    if isinstance(mechanism, SquareWave):
        return _least_squares(mechanism, reports, n_users)[items]
    if not isinstance(mechanism, SupportCounting):
        raise TypeError(f"nothing is known here of reports of a {type(mechanism).__name__}")
    support = _supported(mechanism, reports, items)
    noise = kept * mechanism.q + uniform * mechanism.q_dummy + item_mean
    return np.asarray((support - noise) / (kept * (mechanism.p - mechanism.q)), dtype=np.float64)


def _some_items(collection: Collection) -> NDArray[np.int64]:
    size = collection.task.domain_size
    return np.unique(np.linspace(0, size - 1, min(size, _ITEMS)).astype(np.int64))


def _supported(
    mechanism: SupportCounting, reports: Reports, items: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Count, item by item, the reports that say of themselves that they support it."""
    says: Any = mechanism  # every mechanism does, of each report
    return np.array([int(says.supports(reports, item).sum()) for item in items.tolist()])


def _tallied(collection: Collection, reports: Reports) -> bool:
    """
    Say whether the cells that the analyzer kept count these reports, and no others.

    Of a hash family they are cells of seed and bucket: what they say of items is compared, and
    their sum. Of places on a line each is compared.
    """
    mechanism = collection.mechanism
    if len(collection.cells) != mechanism.tally(reports[:0]).nbytes:
        return False
    cells = np.frombuffer(collection.cells, dtype=np.int64)
    if not isinstance(mechanism, SupportCounting):
        named = Counter(reports["item"].tolist())
        return all(count == named[place] for place, count in enumerate(cells.tolist()))
    items = _some_items(collection)
    counted = _supported(mechanism, reports, items)
    if isinstance(mechanism, LocalHashing) and int(cells.sum()) != len(reports):
        return False
    return bool((mechanism.support_counts(cells)[items] == counted).all())


def _least_squares(mechanism: SquareWave, reports: Reports, n_users: int) -> NDArray[np.float64]:
    """
    Fit the shares of all items to the numbers of reports at each place.

    A user's report lies at each of the `width` places around the item with a chance of true/total,
    elsewhere with one of other/total; a dummy anywhere. The floor taken off, AᵀA·θ = Aᵀc is solved,
    A the places around each item: AᵀA counts the places that two items share.
    """
    d, width, weights = mechanism.domain_size, mechanism.width, mechanism.weights
    n_places = d + width - 1
    named = Counter(reports["item"].tolist())
    counts = np.array([named[place] for place in range(n_places)], dtype=np.float64)
    total = width * weights.true + (d - 1) * weights.other
    rest = counts - n_users * weights.other / total - (len(reports) - n_users) / n_places
    shared = np.maximum(0, width - np.arange(d)).astype(np.float64)
    around = np.convolve(rest, np.ones(width), mode="valid")
    rise = n_users * (weights.true - weights.other) / total
    return np.asarray(solve_toeplitz(shared, around) / rise, dtype=np.float64)
