"""Poisoning by fake users: the rise of some items' estimates, against its formula [CJG21]."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from common.errors import WireError
from common.mechanisms.base import Reports
from common.messages.submission import Submission, unpack
from common.task.task import SUBMISSION_ID_BYTES, Task
from deploy.audit.attacks.crafted_reports import uniform
from deploy.audit.attacks.poisoned_collection import FAKE_SHARE, PoisonedCollection
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Findings
from deploy.audit.subject import AuditSubject

_WHO: Final = f"{FAKE_SHARE:.0%} of the users"
_FLOOD: Final = 10
"""Submissions' worth of reports that a flooding user sends at once."""


def input_manipulation(
    subject: AuditSubject, rng: np.random.Generator, *, counted_twice: bool = False
) -> Findings:
    """Fake users answer honestly for targets that they do not hold [CJG21]."""
    attack = PoisonedCollection.of(subject, rng)
    values = rng.choice(attack.leverage.targets, size=attack.n_fakes)
    return _drawn(
        attack,
        attack.mechanism.randomize(values, rng),
        attack.leverage.honest,
        rng,
        counted_twice=counted_twice,
        scenario="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        sentence="Users who lie about their value, and do nothing else, raise the items that they "
        "name by no more than their own share of all users, on average.",
    )


def random_reports(
    subject: AuditSubject, rng: np.random.Generator, *, counted_twice: bool = False
) -> Findings:
    """Fake users send uniformly random valid reports in place of randomized ones [CJG21]."""
    attack = PoisonedCollection.of(subject, rng)
    return _drawn(
        attack,
        uniform(attack.mechanism, attack.n_fakes, rng),
        attack.leverage.uniform,
        rng,
        counted_twice=counted_twice,
        scenario="random-reports",
        title="Fake users who send random reports",
        limit=True,
        sentence="Users who send random reports distort the estimate as calculated; nothing "
        "distinguishes them from other users.",
    )


def _drawn(
    attack: PoisonedCollection,
    reports: Reports,
    mean: float,
    rng: np.random.Generator,
    *,
    counted_twice: bool,
    **fields: Any,  # noqa: ANN401  # of `_finding`
) -> Findings:
    attack.add_drawn(reports, mean, rng)
    attack.add_honest_dummies(rng)
    if counted_twice:
        attack.count_twice()
    finding = _finding(attack, own=mean, each=attack.leverage.dummy_floor, **fields)
    return Findings(findings=(finding,))


def maximal_gain(
    subject: AuditSubject, rng: np.random.Generator, *, factor: float = 1.0
) -> Findings:
    """
    Fake users craft their own reports; their dummies are honest.

    The maximal gain attack raises the sum of the targets' estimates most [CJG21]. In some hash
    families the report that does so raises every item; then a report that singles out the targets
    is shown beside it. `factor`: the formula multiplies a crafted report's weight by it.
    """
    attack = PoisonedCollection.of(subject, rng)
    lever = attack.leverage
    tried = "of those tried " if lever.searched_in_part else ""
    findings = [
        _crafted(
            attack.without_fakes(),
            lever.crafted,
            factor * lever.weight,
            rng,
            title="Crafted reports that single out the targets",
            sentence="A report that a user crafts for chosen items counts for them together as "
            f"much as {_answers(lever.worth)}; none {tried}raises them more above all items, and "
            "nothing distinguishes it from other reports.",
        )
    ]
    if lever.blunt is not None:
        findings.append(
            _crafted(
                attack.without_fakes(),
                lever.blunt,
                factor * lever.high,
                rng,
                title="Crafted reports that support every item",
                sentence="The hash family has a report that supports every item at once: none "
                "adds more to the sum of the targets' estimates, but it singles out nothing.",
            )
        )
    return Findings(findings=tuple(findings))


def _crafted(
    attack: PoisonedCollection,
    report: Reports,
    weight: float,
    rng: np.random.Generator,
    *,
    title: str,
    sentence: str,
) -> Finding:
    attack.add_copies(report, weight, attack.n_fakes, rng)
    attack.add_honest_dummies(rng)
    return _finding(
        attack,
        own=weight,
        each=attack.leverage.dummy_floor,
        scenario="maximal-gain",
        title=title,
        limit=True,
        sentence=sentence,
    )


def dummy_abuse(subject: AuditSubject, rng: np.random.Generator, *, uncounted: int = 0) -> Findings:
    """Fake users craft every report of a submission. `uncounted`: reports the formula omits."""
    number = subject.task.reports_per_user
    attack = PoisonedCollection.of(subject, rng)
    weight = attack.leverage.weight * (number - uncounted) / number
    attack.add_copies(attack.leverage.crafted, weight, number * attack.n_fakes, rng)
    finding = _finding(
        attack,
        own=weight,
        each=weight,
        scenario="dummy-abuse",
        title=f"Fake users who craft all {number} reports of a submission",
        limit=True,
        sentence="A user who crafts every report of a submission counts for the chosen items as "
        f"much as {_answers(attack.leverage.together(number))}; the number of reports in a "
        "submission bounds the attack.",
    )
    return Findings(findings=(finding,))


def message_flood(
    subject: AuditSubject,
    rng: np.random.Generator,
    *,
    parse: Callable[[bytes, Task], Submission] = unpack,
) -> Findings:
    """Fake users send many times the task's number of reports. `parse` reads a submission."""
    task, checks = subject.task, Checks()
    number = _FLOOD * task.reports_per_user
    attack = PoisonedCollection.of(subject, rng)
    weight = attack.leverage.weight
    attack.add_copies(attack.leverage.crafted, weight, number * attack.n_fakes, rng)
    for reports in (0, task.reports_per_user - 1, task.reports_per_user + 1, number):
        plaintext = bytes(SUBMISSION_ID_BYTES + reports * task.sealed_report_bytes)
        checks.must(
            f"the shuffler refuses a submission of {reports} reports",
            _refuses(parse, plaintext, task),
        )
    finding = _finding(
        attack,
        own=weight,
        each=weight,
        checks=checks,
        scenario="message-flood",
        title=f"Fake users who send {number} crafted reports, if their number were not checked",
        sentence="Were the number of reports in a submission not checked, the gain would grow in "
        "proportion; the shuffler refuses every other number.",
    )
    return Findings(findings=(finding,))


def _refuses(parse: Callable[[bytes, Task], Submission], plaintext: bytes, task: Task) -> bool:
    try:
        parse(plaintext, task)
    except WireError:
        return True
    return False


def unchecked_parse(plaintext: bytes, task: Task) -> Submission:  # noqa: ARG001  # stands for `unpack`
    """Read a submission of any number of reports: a weakness that the audit must notice."""
    return Submission(
        submission_id=plaintext[:SUBMISSION_ID_BYTES],
        sealed_reports=plaintext[SUBMISSION_ID_BYTES:],
    )


def _finding(
    attack: PoisonedCollection,
    *,
    own: float,
    each: float,
    scenario: str,
    title: str,
    sentence: str,
    checks: Checks | None = None,
    limit: bool = False,
) -> Finding:
    """
    Compare an attack with the formula.

    Args:
        attack: With all fake reports.
        own: Mean weight of a fake user's first report, by the formula.
        each: Mean weight of each further report.
        scenario: Its name.
        title: The finding's title.
        sentence: Its sentence if all checks hold.
        checks: Further checks.
        limit: Nothing prevents the attack.
    """
    lever, checks = attack.leverage, checks or Checks()
    checks.must("the estimate rises by the weight of the fake reports", attack.rises_by_the_weight)
    if attack.variance:
        checks.test("weight of the drawn reports", attack.p_weight)
    finding = checks.finding(
        scenario=scenario,
        title=title,
        heading="sender disruption",
        coalition=_WHO,
        sentence=sentence,
        theorem="[CJG21]",
        expected=lever.gain(attack.share, own, further=attack.further, each=each, held=attack.held),
        measured=attack.rise,
        trials=attack.n_users,
    )
    number = attack.task.reports_per_user
    figures = (
        f"rise of the estimated share of {len(lever.targets)} rare items together",
        f"no submission of {number} report{'' if number == 1 else 's'} counts for more than "
        + _answers(lever.most(number)),
        finding.statistic,
    )
    finding = replace(finding, statistic="; ".join(figures))
    return known_limit(finding) if limit else finding


def known_limit(finding: Finding) -> Finding:
    """Mark a finding whose checks hold as a limit that nothing prevents."""
    return replace(finding, verdict="known limit") if finding.verdict == "holds" else finding


def _answers(number: float) -> str:
    """Write a number of honest answers, rounded up."""
    shown = math.ceil(10 * number - 1e-9) / 10
    return f"{shown:g} honest answer{'' if shown == 1 else 's'}"
