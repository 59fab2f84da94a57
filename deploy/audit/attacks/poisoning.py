"""
Poisoning by fake users: the measured rise of the targets' estimates against its formula [CJG21].

The deployed code counts and estimates a simulated collection.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import numpy as np

from analyzer.finalize import mixture_of
from common.errors import WireError
from common.mechanisms.base import Counts, Reports
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.support import SupportCounting
from common.messages.submission import Submission, unpack
from common.task.task import SUBMISSION_ID_BYTES, Task
from deploy.audit.attacks.leverage import Items, leverage, supported, uniform
from deploy.audit.finding import Checks, Rows
from deploy.audit.scenario import AuditSubject, Scenario
from deploy.simulate.collection import collect, draw_group_dummies, few_enough_reports
from shuffler.item_dummies import draw_kept

Parse = Callable[[bytes, Task], Submission]
"""Parser of a submission."""

_FAKE_SHARE: Final = 0.05
"""Share λ of fake users, as in [CJG21]."""
_MAX_TARGETS: Final = 10
_MIN_USERS: Final = 100
_MAX_USERS: Final = 200_000
_MAX_PAIRS: Final = 20_000_000
"""Maximum number of pairs of report and candidate string to hash."""
_ZIPF: Final = 1.1
_REL_TOL: Final = 1e-9
"""Tolerance for rounding in sums of float64."""
_FLOOD_FACTOR: Final = 10
"""Number of submissions whose reports a fake user puts into one submission."""


def poison(
    subject: AuditSubject,
    rng: np.random.Generator,
    *,
    first: Literal["answer", "random", "crafted"],
    sentence: str,
    title: str = "",
    submissions: int = 0,
    refused: bool = False,
    factor: float = 1.0,
    counted_twice: bool = False,
    parse: Parse = unpack,
) -> Rows:
    """
    Simulate one kind of poisoning by fake users; no findings if reports support no items.

    Args:
        subject: The audited task.
        rng: Draws users and reports.
        first: A fake user's first report: an honest answer for a target, or a uniform report.
        sentence: In it, `{answers}` becomes the number of honest answers that raise the targets as
            much as one fake user.
        title: In it, `{number}` becomes the number of reports per fake user.
        submissions: Submissions full of crafted reports; 0: one `first` report and honest dummies.
        refused: Whether the attack is harmless or refused; otherwise it is a known limit.
        factor: Factor on a crafted report's weight in the formula; below 1 injects a weakness.
        counted_twice: Injects a weakness: the analyzer counts the reports of fake users twice.
        parse: Parser that must refuse a submission with a wrong number of reports.
    """
    task, mechanism, checks = subject.task, subject.mechanism, Checks()
    if not isinstance(mechanism, SupportCounting):
        return ()
    users, n_fakes, targets = _users(subject, rng)
    n_honest, n_users = int(users.sum()), int(users.sum()) + n_fakes
    one_by_one = few_enough_reports(task, n_honest)
    honest = collect(task, mechanism, users, rng, one_by_one=one_by_one)
    lever, kept_share = leverage(task, mechanism, targets, rng), task.shuffler.keep_probability
    number = submissions * task.reports_per_user or 1
    drawn = list[tuple[Reports, float]]()
    cells, n_reports, weight = np.zeros_like(honest.cells), 0, 0.0
    if first == "crafted":
        own = factor * lever.weight
        n_reports = int(rng.binomial(number * n_fakes, kept_share))
        cells, weight = n_reports * mechanism.tally(lever.crafted), n_reports * own
    elif first == "random":
        own = lever.uniform
        drawn.append((uniform(mechanism, n_fakes, rng), own))
    else:
        own, held = lever.honest, rng.choice(targets, size=n_fakes)
        drawn.append((mechanism.randomize(held, rng), own))
    if not submissions:
        _, dummies = draw_group_dummies(mechanism, task.dummies, n_fakes, rng)
        drawn.append((dummies, lever.dummy_floor))
    off, n_drawn = 0.0, 0
    for reports, mean in drawn:
        kept = reports[draw_kept(task.shuffler, len(reports), rng)]
        added = float(supported(mechanism, kept, targets).sum())
        off, n_drawn = off + added - len(kept) * mean, n_drawn + len(kept)
        cells, weight = cells + mechanism.tally(kept), weight + added
    n_reports += n_drawn
    if n_drawn:
        p_weight = 2 * math.exp(-2 * off**2 / (n_drawn * lever.high**2))  # [BLM13, Theorem 2.8]
        checks.test("weight of the drawn reports", min(1.0, p_weight))
    before, after = (
        float(mechanism.debias(counts, mixture_of(task, among, counted=counted))[targets].sum())
        for counts, among, counted in (
            (honest.cells, n_honest, honest.n_reports),
            (honest.cells + (1 + counted_twice) * cells, n_users, honest.n_reports + n_reports),
        )
    )
    # Both estimates count the same honest reports, so their noise cancels.
    own_counted, scale = kept_share * n_fakes, kept_share * lever.signal
    floors = own_counted * lever.own_floor + (n_reports - own_counted) * lever.dummy_floor
    rise = scale * (n_users * after - n_honest * before)
    size = scale * (n_users * abs(after) + n_honest * abs(before)) + abs(floors) + abs(weight) + 1
    rises = abs(rise + floors - weight) <= _REL_TOL * size
    checks.require("the estimate rises by the weight of the fake reports", rises)
    per_user = task.reports_per_user
    for wrong in (0, per_user - 1, per_user + 1, number) if submissions > 1 else ():
        refusal = True
        with suppress(WireError):
            parse(bytes(SUBMISSION_ID_BYTES + wrong * task.sealed_report_bytes), task)
            refusal = False
        checks.require(f"the shuffler refuses a submission of {wrong} reports", refusal)
    most = _answers(lever.answers(lever.high, further=per_user - 1, each=lever.high))
    row = checks.finding(
        title=title.format(number=number),
        heading="sender disruption",
        sentence=sentence.format(
            answers=_answers(lever.answers(own, further=number - 1, each=own))
        ),
        known_limit=not refused,
        coalition=f"{_FAKE_SHARE:.0%} of the users",
        theorem="[CJG21]",
        expected=lever.gain(
            n_fakes / n_users,
            own,
            further=n_reports / own_counted - 1,
            each=own if submissions else lever.dummy_floor,
            held=float(users[targets].sum() / n_honest),
        ),
        measured=after - before,
        trials=n_users,
        notes=(f"targets: {len(targets)} rare items; a submission counts for at most {most}",),
    )
    return (row,)


def _users(subject: AuditSubject, rng: np.random.Generator) -> tuple[Counts, int, Items]:
    """Return the honest users by item, by Zipf's law, the number of fakes, and the rarest items."""
    task, most = subject.task, _MAX_USERS
    if isinstance(subject.mechanism, StringHashing):
        pairs = task.domain_size * (1 + task.dummies.expected_per_user)
        most = max(1000, min(_MAX_USERS, int(_MAX_PAIRS / pairs)))
    n_users = max(_MIN_USERS, min(subject.n_users, most))
    n_fakes = max(1, round(_FAKE_SHARE * n_users))
    popularity = np.arange(1, task.domain_size + 1, dtype=np.float64) ** -_ZIPF
    users = rng.multinomial(n_users - n_fakes, popularity / popularity.sum())
    r = min(_MAX_TARGETS, task.domain_size // 2)
    return users, n_fakes, np.arange(task.domain_size - r, task.domain_size, dtype=np.int64)


def unchecked_parse(plaintext: bytes, task: Task) -> Submission:  # noqa: ARG001  # it replaces `unpack`
    """Parse a submission with any number of reports."""
    return Submission(
        submission_id=plaintext[:SUBMISSION_ID_BYTES],
        sealed_reports=plaintext[SUBMISSION_ID_BYTES:],
    )


def _answers(number: float) -> str:
    """Format a number of honest answers, rounded up to one decimal."""
    shown = math.ceil(10 * number - 1e-9) / 10
    return f"{shown:g} honest answer{'' if shown == 1 else 's'}"


_COUNTED_TWICE: Final = "The analyzer counts every report of a fake user twice."
_UNDERSTATED: Final = "The formula understates the weight of a crafted report by a tenth."

SCENARIOS: Final = (
    Scenario(
        name="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        check=partial(
            poison,
            first="answer",
            refused=True,
            sentence="Users who only lie about their value raise the items they name by no more "
            "than their share of all users, on average.",
        ),
        weakness=_COUNTED_TWICE,
        weakness_options={"counted_twice": True},
    ),
    Scenario(
        name="random-reports",
        title="Fake users who send random reports",
        check=partial(
            poison,
            first="random",
            sentence="Users who send random reports distort the estimate as calculated; nothing "
            "distinguishes them from other users.",
        ),
        weakness=_COUNTED_TWICE,
        weakness_options={"counted_twice": True},
    ),
    Scenario(
        name="maximal-gain",
        title="Fake users who craft their reports",
        check=partial(
            poison,
            first="crafted",
            sentence="A report crafted for chosen items counts as much as {answers} for all of "
            "them together; nothing distinguishes it from other reports.",
        ),
        weakness=_UNDERSTATED,
        weakness_options={"factor": 0.9},
    ),
    Scenario(
        name="dummy-abuse",
        title="Fake users who craft their dummies too",
        check=partial(
            poison,
            first="crafted",
            submissions=1,
            title="Fake users who craft all {number} reports of a submission",
            sentence="A user who crafts every report of a submission counts as much as {answers} "
            "for the chosen items; the number of reports in a submission bounds the attack.",
        ),
        weakness=_UNDERSTATED,
        weakness_options={"factor": 0.9},
    ),
    Scenario(
        name="message-flood",
        title="Fake users who send many more reports than the task allows",
        check=partial(
            poison,
            first="crafted",
            submissions=_FLOOD_FACTOR,
            refused=True,
            title="Fake users who send {number} crafted reports, if their number were not checked",
            sentence="If the number of reports in a submission were not checked, the gain would "
            "grow in proportion; the shuffler refuses every wrong number.",
        ),
        weakness="The shuffler does not count the reports of a submission.",
        weakness_options={"parse": unchecked_parse},
    ),
)
