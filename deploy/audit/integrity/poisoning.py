"""What fake users do to the estimate of some items, by what they send: against its formula."""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from common.mechanisms.base import Reports
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.integrity.crafted import uniform
from deploy.audit.integrity.crowd import FAKE_SHARE, Crowd, Poison
from deploy.audit.integrity.known_limit import known_limit

_WHO: Final = f"{FAKE_SHARE:.0%} of the users"
_EXACT: Final = 1e-9
"""Relative: what rounding may come to, and no wrong formula does."""
_FLOOD: Final = 10
"""Submissions' worth of reports that a flooding user sends at once."""


def input_manipulation(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Fake users answer honestly for targets that they do not hold [CJG21]."""
    crowd, checks = Crowd.of(audited, rng), Checks()
    poison, lever = crowd.nothing(), crowd.leverage
    values = rng.choice(lever.targets, size=crowd.n_fakes)
    poison.add(crowd.mechanism.randomize(values, rng), lever.honest, rng)
    poison.add_dummies(rng)
    measured, law = crowd.of_honest()
    checks.test("the estimate of honest users alone is unbiased", law.p_value(measured))
    finding = _row(
        poison,
        checks,
        own=lever.honest,
        each=lever.dummy_floor,
        scenario="input-manipulation",
        title="Values that are not one's own, answered honestly",
        sentence="Users who lie about their value, and do nothing else, raise what they name by "
        "no more than their own share of all users, on average.",
    )
    return Outcome(findings=(finding,))


def random_reports(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Fake users send uniformly random valid reports in place of randomized ones [CJG21]."""
    crowd = Crowd.of(audited, rng)
    poison, lever = crowd.nothing(), crowd.leverage
    poison.add(uniform(crowd.mechanism, crowd.n_fakes, rng), lever.uniform, rng)
    poison.add_dummies(rng)
    finding = _row(
        poison,
        Checks(),
        own=lever.uniform,
        each=lever.dummy_floor,
        scenario="random-reports",
        title="Random reports in place of one's own",
        limit=True,
        sentence="Users who send random reports spoil the estimate by what is calculated, and "
        "nothing tells them from others.",
    )
    return Outcome(findings=(finding,))


def maximal_gain(audited: Audited, rng: np.random.Generator) -> Outcome:
    """
    Fake users craft their own reports; their dummies are honest.

    The maximal gain attack lifts the sum of the targets' estimates most [CJG21]. Of some hash
    families the report that does lifts every item there is; then one that picks the targets out is
    shown beside it.
    """
    crowd = Crowd.of(audited, rng)
    lever = crowd.leverage
    found = "none of those tried lifts them" if lever.searched_in_part else "none lifts them"
    chosen, more = "Own reports that pick the targets out", "none lifts them more above all items"
    if lever.blunt is None:
        chosen, more = "Own reports of maximal gain for the targets", f"{found} more together"
    rows = [
        _crafted(
            crowd,
            rng,
            lever.crafted,
            lever.weight,
            title=chosen,
            sentence="A report that a user crafts for chosen items counts for them together as "
            f"much as {_answers(lever.worth)}; {more}, and nothing tells it from others.",
        )
    ]
    if lever.blunt is not None:
        rows.append(
            _crafted(
                crowd,
                rng,
                lever.blunt,
                lever.high,
                title="Own reports of maximal gain for the targets: they support every item",
                sentence="The hash family has a report that supports every item at once: none "
                "adds more to the sum of the targets' estimates, but it picks nothing out.",
            )
        )
    return Outcome(findings=tuple(rows))


def _crafted(  # what such a row is made of
    crowd: Crowd,
    rng: np.random.Generator,
    report: Reports,
    weight: float,
    *,
    title: str,
    sentence: str,
) -> Finding:
    """Let every fake user send one crafted report, with honest dummies."""
    poison = crowd.nothing()
    poison.add_copies(report, weight, crowd.n_fakes, rng)
    poison.add_dummies(rng)
    return _row(
        poison,
        Checks(),
        own=weight,
        each=crowd.leverage.dummy_floor,
        scenario="maximal-gain",
        title=title,
        limit=True,
        refine=True,
        sentence=sentence,
        advice="Tokens bound how many users can be fake; more local epsilon makes a crafted "
        "report worth less.",
    )


def dummy_abuse(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Fake users craft their dummies too: every report of a submission."""
    number = audited.task.reports_per_user
    if number == 1:
        return Outcome(findings=())
    crowd = Crowd.of(audited, rng)
    poison, lever = crowd.nothing(), crowd.leverage
    poison.add_copies(lever.crafted, lever.weight, number * crowd.n_fakes, rng)
    finding = _row(
        poison,
        Checks(),
        own=lever.weight,
        each=lever.weight,
        scenario="dummy-abuse",
        title=f"All {number} reports of a submission crafted",
        limit=True,
        refine=True,
        sentence="A user who crafts every report of a submission counts for the chosen items as "
        f"much as {_answers(lever.together(number))}; the number of reports in a submission is "
        "what bounds it.",
        advice="Fewer dummies for each user, or dummies made by the shuffler, leave less to abuse.",
    )
    return Outcome(findings=(finding,))


def message_flood(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Fake users send many times the task's number of reports, and nobody counts them."""
    crowd = Crowd.of(audited, rng)
    number = _FLOOD * audited.task.reports_per_user
    poison, lever = crowd.nothing(), crowd.leverage
    poison.add_copies(lever.crafted, lever.weight, number * crowd.n_fakes, rng)
    finding = _row(
        poison,
        Checks(),
        own=lever.weight,
        each=lever.weight,
        scenario="message-flood",
        title=f"{number} crafted reports of each fake user, if their number were not checked",
        refine=True,
        sentence="Were the number of reports in a submission not checked, more of them would gain "
        "in proportion; the shuffler refuses every other number, see dishonest-clients.",
    )
    return Outcome(findings=(finding,))


def _row(
    poison: Poison,
    checks: Checks,
    *,
    own: float,
    each: float,
    scenario: str,
    title: str,
    sentence: str,
    advice: str = "",
    refine: bool = False,
    limit: bool = False,
) -> Finding:
    """Compare what the fake users came to with the formula; weights as of Leverage.gain."""
    crowd, lever = poison.crowd, poison.crowd.leverage
    further = poison.counted / (crowd.task.shuffler.kept * crowd.n_fakes) - 1
    expected = lever.gain(crowd.share, own, further=further, each=each, held=crowd.held)
    measured = poison.after - crowd.before
    drawn = poison.surplus(own, each)
    exact = expected + crowd.share * (crowd.held - crowd.before) + drawn
    size = 1 + abs(measured) + abs(expected) + abs(crowd.before) + abs(drawn)
    checks.must(
        "the rise is the expected one, but for what was drawn",
        abs(measured - exact) <= _EXACT * size,
    )
    checks.must("the estimate moves by what fake users' reports weigh", poison.is_weighed)
    if poison.law.variance:
        checks.test("what reports that are drawn weigh", poison.law.p_value(poison.weight))
    finding = checks.finding(
        scenario=scenario,
        title=title,
        heading="sender disruption",
        coalition=_WHO,
        sentence=sentence,
        advice=advice,
        theorem="[CJG21]",
        expected=expected,
        measured=measured,
        trials=crowd.n_users,
    )
    if limit:
        finding = known_limit(finding)
    return replace(finding, statistic="; ".join(_figures(poison, finding, refine=refine)))


def _figures(poison: Poison, finding: Finding, *, refine: bool) -> list[str]:
    crowd, lever = poison.crowd, poison.crowd.leverage
    figures = [f"rise of the estimated share of {len(lever.targets)} rare items together"]
    if refine:
        before = crowd.refined(crowd.counted, crowd.n_honest)
        after = crowd.refined(poison.batch, crowd.n_users)
        number = crowd.task.reports_per_user
        most, whole = lever.most(number), f"{number} report{'' if number == 1 else 's'}"
        figures += [
            f"of the refined one ({crowd.refinement}) {after - before:.3g}",
            f"no submission of {whole} counts for more than {_answers(most)}",
        ]
    return [*figures, finding.statistic]


def _answers(number: float) -> str:
    """Say how many honest answers something is worth, rounded up."""
    shown = math.ceil(10 * number - 1e-9) / 10
    return f"{shown:g} honest answer{'' if shown == 1 else 's'}"
