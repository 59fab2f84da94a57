"""Number: as many reports from every user, as many dummies as the law says, whatever the value."""

from collections.abc import Sequence

import numpy as np

from common.task.shuffler_spec import ShufflerSpec
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.fit import of_cells, of_chance
from deploy.audit.laws.dummy_laws import law_of_added, law_of_extra
from deploy.audit.raw_bytes import pieces
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.traced import TracedAnswer
from deploy.audit.services.views import Views


def finding(record: Record, views: dict[str, Views]) -> Finding:
    """Count what every user sent, and what was delivered."""
    checks = Checks()
    for collection in (record.first, record.again, record.early):
        view = views.get(collection.name)
        checks.must(f"the {collection.name} batch was delivered", view is not None)
        _of_users(checks, collection)
        if view is not None:
            _of_batch(checks, collection, view)
    _of_values(checks, [*record.first.answers, *record.again.answers], record.first)
    task = record.first.task
    own = (
        f"one own report and {_dummies(task.dummies.per_user)}"
        if task.dummies.law == "fixed"
        else "one own report, and dummies of the task's law under padding"
    )
    return checks.finding(
        scenario="services",
        title="Number of messages",
        heading="anonymity",
        coalition="network",
        sentence=(
            f"Every user sent one envelope of {task.reports_per_user} sealed reports: {own}. "
            "How many there are does not depend on the value."
        ),
        trials=len(record.first.answers) + len(record.again.answers),
    )


def _dummies(number: int) -> str:
    return "1 dummy" if number == 1 else f"{number} dummies"


def of_added(added: int, law: ShufflerSpec, items: int) -> float:
    """
    Test how many dummies a shuffler added for so many items together, by their exact law.

    Cost: a transform of as many places as there may be dummies.
    """
    if law.law == "binomial":
        return of_chance(added, items * law.trials, 0.5)
    size = items * law.most + 1
    if not 0 <= added < size:
        return 0.0
    sums = np.fft.irfft(np.fft.rfft(law_of_added(law), 2 * size) ** items, 2 * size)
    sums = np.clip(sums, 0, None)
    return float(min(1.0, 2 * min(sums[: added + 1].sum(), sums[added:size].sum())))


def _of_users(checks: Checks, collection: Collection) -> None:
    task, name = collection.task, f"in the {collection.name} batch"
    null = b"\xff" * task.mechanism.report_bytes
    made = [sum(report != null for report in answer.reports) for answer in collection.answers]
    least, most = 1 + task.dummies.per_user, task.reports_per_user
    checks.must(
        f"every device seals {most} reports {name}",
        all(len(answer.reports) == most for answer in collection.answers),
    )
    checks.must(
        f"every user has {least} to {most} reports that are no padding {name}",
        all(least <= count <= most for count in made),
    )


def _of_batch(checks: Checks, collection: Collection, view: Views) -> None:
    task, name = collection.task, f"of the {collection.name} batch"
    size, n_users = task.sealed_report_bytes, len(view.shuffler.submissions)
    checks.must(
        f"every submission {name} holds {task.reports_per_user} sealed reports",
        all(
            len(pieces(one.sealed_reports, size)) == task.reports_per_user
            for one in view.shuffler.submissions
        ),
    )
    sent, delivered = n_users * task.reports_per_user, view.shuffler.order
    users = int((delivered >= 0).sum())
    added = len(delivered) - users
    if task.shuffler.kept == 1:
        checks.must(f"the shuffler passes on every report {name}", users == sent)
    else:
        checks.test(
            f"reports that the shuffler keeps {name}", of_chance(users, sent, task.shuffler.kept)
        )
    if task.shuffler.law == "none":
        checks.must(f"the shuffler adds no report {name}", added == 0)
    else:
        checks.test(
            f"dummies that the shuffler adds {name}",
            of_added(added, task.shuffler, task.domain_size),
        )
        checks.must(f"the shuffler adds no more than it may {name}", _within(view, collection))


def _within(view: Views, collection: Collection) -> bool:
    """Say whether the shuffler's own dummies name items, none more often than the law allows."""
    task, mechanism = collection.task, collection.mechanism
    texts = [
        text
        for text, place in zip(view.analyzer.opened, view.shuffler.order, strict=True)
        if place < 0
    ]
    if None in texts:
        return False
    reports = np.frombuffer(b"".join(filter(None, texts)), dtype=mechanism.report_dtype)
    items, counts = np.unique(reports, return_counts=True)
    return bool(mechanism.valid(reports).all()) and (
        not len(items) or int(counts.max()) <= task.shuffler.most
    )


def _of_values(checks: Checks, answers: Sequence[TracedAnswer], collection: Collection) -> None:
    task, law = collection.task, law_of_extra(collection.task.dummies)
    middle = float(np.median([answer.value for answer in answers])) if answers else 0.0
    for which, part in (
        ("small values", [answer for answer in answers if answer.value <= middle]),
        ("large values", [answer for answer in answers if answer.value > middle]),
    ):
        more = np.array([one.n_dummies - task.dummies.per_user for one in part], dtype=np.int64)
        fits = bool(((more >= 0) & (more < len(law))).all())
        checks.must(f"as many dummies as the law allows, with {which}", fits)
        if fits and len(law) > 1 and len(part):
            seen = np.bincount(more, minlength=len(law)).astype(np.int64)
            checks.test(f"number of dummies with {which}", of_cells(seen, law))
