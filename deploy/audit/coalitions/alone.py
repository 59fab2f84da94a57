"""One user left alone: the n-1 attack, and users who do not add their dummies."""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np

from common.accounting.assumptions import ENCRYPTED
from common.accounting.guarantees import analyzer_guarantee, local_guarantee, skippers_guarantee
from common.mechanisms.base import Reports
from common.messages.guarantee import rounded_up
from deploy.audit.coalitions.crowd import STATISTIC, proven_epsilon, run_crowd
from deploy.audit.coalitions.messages import own_dummies, own_reports, scores, slow_to_draw
from deploy.audit.finding import Findings
from deploy.audit.game import run_game
from deploy.audit.game_rows import computed_row, game_row
from deploy.audit.subject import AuditSubject
from shuffler.permutation import permute

Permute = Callable[[np.ndarray, np.random.Generator], np.ndarray]

_FORGED: Final = 200
_BATCHES: Final = 50
_FEW: Final = 10
"""Users among whom missing dummies are measured."""
_SLOW_TRIALS: Final = 50_000
_LEFT_ALONE: Final = (
    "your own device randomizes as the task says, and adds its dummies",
    "the analyzer shows the shuffler the counts that it publishes, and nothing else",
    ENCRYPTED,
)
"""The assumptions that the n-1 attack leaves."""


def permute_and_lose(reports: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Permute a batch and lose its last report."""
    return permute(reports, rng)[:-1]


def run_n_minus_one(
    subject: AuditSubject, rng: np.random.Generator, permuted: Permute = permute
) -> Findings:
    """
    Let the shuffler replace all reports but the victim's by its own.

    It subtracts its own from the published result. The rest is how often the victim's messages
    support each item, and the likelihood ratio depends on nothing else. The shuffler also knows,
    and subtracts, the dummies that it adds itself.
    """
    if subject.terms.reduction is None:
        return Findings(findings=())
    task, mechanism = subject.task, subject.mechanism
    helped = not task.shuffler.idle
    trials = int(subject.sizes.games / (1 + task.dummies.expected_per_user))
    if slow_to_draw(task.dummies):
        trials = min(trials, _SLOW_TRIALS)
    first, second = 0, task.domain_size - 1
    worlds = []
    for item in (first, second):
        sent = own_reports(mechanism, item, trials, rng)
        if task.dummies.maximum:
            sent = sent.joined(own_dummies(task, mechanism, trials, rng))
        worlds.append(scores(mechanism, sent, (first, second)))
    found = sum(_recovered(subject, rng, permuted) for _ in range(_BATCHES))
    alone = subject.terms.crowd_of(subject.n_users, 1, 1, 0)
    claimed = (
        local_guarantee("analyzer", subject.terms)
        if helped
        else dataclasses.replace(
            analyzer_guarantee(subject.terms, subject.n_users, honest=1),
            assumptions=_LEFT_ALONE,
        )
    )
    row = game_row(
        run_game(worlds[0], worlds[1], claimed.delta),
        claimed=claimed,
        exact=mechanism.local_epsilon if helped else proven_epsilon(subject.terms, alone),
        scenario="n-1",
        title="All reports but one user's replaced",
        heading="anonymity",
        coalition="shuffler+users",
        statistic=f"likelihood ratio of the two values' counts; {found} of {_BATCHES} forged "
        "batches came down to the victim's messages",
        sentence="A shuffler that replaces everybody else's reports by its own finds yours in the "
        "published result; only your own noise and dummies are left.",
        advice="Ask for tokens and send sentinels, and let devices check that they were counted: "
        "they notice that reports went missing.",
    )
    if found < _BATCHES:
        row = dataclasses.replace(
            row,
            verdict="broken",
            sentence=f"Only {found} of {_BATCHES} forged batches came apart into the forged "
            "reports and the victim's messages.",
        )
    return Findings(findings=(row,))


def _recovered(subject: AuditSubject, rng: np.random.Generator, permuted: Permute) -> bool:
    """Forge a batch around one user, let the deployed code permute it, and take it apart."""
    task, mechanism = subject.task, subject.mechanism
    sent = own_reports(mechanism, 0, 1, rng)
    if task.dummies.maximum:
        sent = sent.joined(own_dummies(task, mechanism, 1, rng))
    forged = mechanism.dummies(_FORGED, rng)
    batch = permuted(_rows(np.concatenate([sent.reports, forged])), rng)
    left = sorted(map(bytes, batch))
    for report in map(bytes, _rows(forged)):
        if report not in left:
            return False
        left.remove(report)
    return left == sorted(map(bytes, _rows(sent.reports)))


def _rows(reports: Reports) -> np.ndarray:
    return np.ascontiguousarray(reports).view(np.uint8).reshape(len(reports), -1)


def run_skippers(
    subject: AuditSubject,
    rng: np.random.Generator,
    believed: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Compute, and measure among few users, the effect of users who add no dummies.

    Args:
        subject: The task, and for how many users.
        rng: Source of all draws.
        believed: Whether the claims count on the dummies of all users, and the attack knows the
            messages of all but the victim; no findings where no attack is computed.
    """
    if not subject.task.dummies.maximum or subject.terms.reduction is None:
        return Findings(findings=())
    n_users, terms = subject.n_users, subject.terms
    claims = [
        skippers_guarantee(terms, users, adding=users if believed else 1)
        for users in (n_users, _FEW)
    ]
    attacks = [
        proven_epsilon(terms, terms.crowd_of(users, 1 if believed else users, 1, 0))
        for users in (n_users, _FEW)
    ]
    if believed and attacks[1] is None:
        return Findings(findings=())
    computed = computed_row(
        claimed=claims[0],
        exact=attacks[0],
        scenario="skippers",
        title=f"{n_users - 1:,} of {n_users:,} users add no dummies",
        heading="anonymity",
        sentence="Users who skip their dummies leave less to hide among: ε = "
        f"{rounded_up(claims[0].epsilon)} if all but you do.",
        advice="Set assumed_honest_fraction below 1: the task then claims only what those who "
        "follow it bring.",
    )
    measured = game_row(
        run_crowd(subject, 1 if believed else _FEW, 1, rng),
        claimed=claims[1],
        exact=attacks[1],
        scenario="skippers",
        aside=True,
        title=f"Among {_FEW} users, of whom {_FEW - 1} add no dummies",
        heading="anonymity",
        statistic=STATISTIC,
        sentence=f"Among {_FEW} users of whom one adds dummies an attack gets no more than is "
        "computed for so few.",
    )
    return Findings(findings=(computed, measured))
