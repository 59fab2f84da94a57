"""One person left alone: the n-1 attack, and users who do not add their dummies."""

import dataclasses
from typing import Final

import numpy as np

from common.accounting.assumptions import ENCRYPTED
from common.accounting.guarantees import analyzer_guarantee, local_guarantee, skippers_guarantee
from common.mechanisms.base import Reports
from common.messages.guarantee import rounded_up
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game import play
from deploy.audit.game_rows import computed_row, game_row
from deploy.audit.privacy.crowd_attack import proven_epsilon
from deploy.audit.privacy.crowd_game import STATISTIC, play_crowd
from deploy.audit.privacy.messages import own_dummies, own_reports, scores, slow_to_draw
from shuffler.permutation import permute

_FORGED: Final = 200
_BATCHES: Final = 50
_FEW: Final = 10
"""Users among whom dummies that are missing are measured."""
_SLOW_TRIALS: Final = 50_000
_LEFT_ALONE: Final = (
    "your own device randomizes as the task says, and adds its dummies",
    "the analyzer shows the shuffler the counts that it publishes, and nothing else",
    ENCRYPTED,
)
"""What the n-1 attack leaves to rely on."""


def play_n_minus_one(audited: Audited, rng: np.random.Generator) -> Outcome:
    """
    Let the shuffler put reports of its own in place of all but the victim's.

    It takes its own off the result that the analyzer publishes. What is left are the victim's
    messages, or how often they support each item: all that the likelihood ratio depends on. What
    dummies the shuffler itself would add, it knows, and takes off too.
    """
    if audited.terms.reduction is None:
        return Outcome(findings=())
    task, mechanism = audited.task, audited.mechanism
    helped = not task.shuffler.idle
    trials = int(audited.effort.games / (1 + task.dummies.expected_per_user))
    if slow_to_draw(task.dummies):
        trials = min(trials, _SLOW_TRIALS)
    first, second = 0, task.domain_size - 1
    worlds = []
    for item in (first, second):
        sent = own_reports(mechanism, item, trials, rng)
        if task.dummies.maximum:
            sent = sent.joined(own_dummies(task, mechanism, trials, rng))
        worlds.append(scores(mechanism, sent, (first, second)))
    found = sum(_recovered(audited, rng) for _ in range(_BATCHES))
    alone = audited.terms.crowd_of(audited.n_users, 1, 1, 0)
    claimed = (
        local_guarantee("analyzer", audited.terms)
        if helped
        else dataclasses.replace(
            analyzer_guarantee(audited.terms, audited.n_users, honest=1),
            assumptions=_LEFT_ALONE,
        )
    )
    row = game_row(
        play(worlds[0], worlds[1], claimed.delta),
        claimed=claimed,
        exact=mechanism.local_epsilon if helped else proven_epsilon(audited.terms, alone),
        scenario="n-1",
        title="All reports but one person's replaced",
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
            sentence=f"Of {_BATCHES} forged batches only {found} came apart into what was forged "
            "and what the victim sent.",
        )
    return Outcome(findings=(row,))


def _recovered(audited: Audited, rng: np.random.Generator) -> bool:
    """Forge a batch around one person, let the deployed code permute it, and take it apart."""
    task, mechanism = audited.task, audited.mechanism
    sent = own_reports(mechanism, 0, 1, rng)
    if task.dummies.maximum:
        sent = sent.joined(own_dummies(task, mechanism, 1, rng))
    theirs = sent.reports
    forged = mechanism.dummies(_FORGED, rng)
    batch = permute(_rows(np.concatenate([theirs, forged])), rng)
    left = sorted(map(bytes, batch))
    for report in _rows(forged):
        left.remove(bytes(report))
    return left == sorted(map(bytes, _rows(theirs)))


def _rows(reports: Reports) -> np.ndarray:
    return np.ascontiguousarray(reports).view(np.uint8).reshape(len(reports), -1)


def play_skippers(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Compute, and among few play, what is left where only the victim adds its dummies."""
    if not audited.task.dummies.maximum or audited.terms.reduction is None:
        return Outcome(findings=())
    n_users = audited.n_users
    claimed = skippers_guarantee(audited.terms, n_users, adding=1)
    crowd = audited.terms.crowd_of(n_users, n_users, 1, 0)
    row = computed_row(
        claimed=claimed,
        exact=proven_epsilon(audited.terms, crowd),
        scenario="skippers",
        title=f"{n_users - 1:,} of {n_users:,} users add no dummies",
        heading="anonymity",
        sentence="Users who save their dummies leave less to hide among: ε = "
        f"{rounded_up(claimed.epsilon)} if all but you do.",
        advice="Set assumed_honest_fraction below 1: the task then claims only what those who "
        "follow it bring.",
    )
    return Outcome(findings=(row, _skippers_played(audited, rng)))


def _skippers_played(audited: Audited, rng: np.random.Generator) -> Finding:
    """Play among so few that it can be measured."""
    terms, crowd = audited.terms, audited.terms.crowd_of(_FEW, _FEW, 1, 0)
    return game_row(
        play_crowd(audited, _FEW, 1, rng),
        claimed=skippers_guarantee(terms, _FEW, adding=1),
        exact=proven_epsilon(terms, crowd),
        scenario="skippers",
        aside=True,
        title=f"Among {_FEW} people, of whom {_FEW - 1} add no dummies",
        heading="anonymity",
        statistic=STATISTIC,
        sentence=f"Among {_FEW} users of whom one adds dummies an attack gets no more than is "
        "computed for so few.",
    )
