"""One person left alone: the n-1 attack, and users who do not add their dummies."""

from typing import Final

import numpy as np

from common.accounting.attack import epsilon_lower
from common.accounting.coalitions import LOCAL, central_epsilon, claimed_guarantee
from common.accounting.release import CrowdRelease
from common.guarantee import rounded_up
from common.mechanisms.mechanism import Reports
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game import play
from deploy.audit.privacy.messages import own_dummies, own_reports, scores, slow_to_draw
from deploy.audit.privacy.rows import computed_row, game_row
from shuffler.permutation import permute

_FORGED: Final = 200
_BATCHES: Final = 50
_SKIPPING: Final = {1.0: "all but you do"}
"""Shares of the users who add none, in words."""
_SLOW_TRIALS: Final = 50_000


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
    delta = 0.0 if helped else task.delta
    row = game_row(
        play(worlds[0], worlds[1], delta),
        claim=task.local_epsilon if helped else _left_alone(audited),
        exact=mechanism.local_epsilon if helped else _attack(audited, honest=1, adding=1),
        scenario="n-1",
        title="All reports but one person's replaced",
        heading="anonymity",
        coalition="shuffler+users",
        delta=delta,
        theorem=LOCAL if helped else claimed_guarantee(audited.terms, audited.n_users).theorem,
        statistic=f"likelihood ratio of the two values' counts; {found} of {_BATCHES} forged "
        "batches came down to the victim's messages",
        sentence="A shuffler that replaces everybody else's reports by its own finds yours in the "
        "published result; only your own noise and dummies are left.",
        advice="Ask for tokens and send sentinels, and let devices check that they were counted: "
        "they notice that reports went missing.",
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


def _left_alone(audited: Audited) -> float:
    """Give what is claimed where all users but the victim collude."""
    return central_epsilon(audited.terms, audited.terms.crowd_of(audited.n_users, 1, 1, 0))


def play_skippers(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Compute what is left where users do not add the dummies that they should."""
    del rng  # nothing is drawn
    if not audited.task.dummies.maximum or audited.terms.reduction is None:
        return Outcome(findings=())
    return Outcome(findings=tuple(_skipping(audited, share) for share in _SKIPPING))


def _skipping(audited: Audited, share: float) -> Finding:
    n_users = audited.n_users
    adding = max(1, n_users - int(share * n_users))
    claim = central_epsilon(audited.terms, audited.terms.crowd_of(n_users, n_users, adding, 0))
    attack = _attack(audited, honest=n_users, adding=adding)
    return computed_row(
        claim=claim,
        exact=attack,
        scenario="skippers",
        title=f"{n_users - adding:,} of {n_users:,} users add no dummies",
        heading="anonymity",
        coalition="analyzer+skippers",
        delta=audited.task.delta,
        theorem=claimed_guarantee(audited.terms, n_users).theorem,
        sentence="Users who save their dummies leave less to hide among: ε = "
        f"{rounded_up(claim)} if {_SKIPPING[share]}.",
        advice="Set assumed_honest_fraction below 1: the task then claims only what those who "
        "follow it bring.",
    )


def _attack(audited: Audited, *, honest: int, adding: int) -> float | None:
    crowd = audited.terms.crowd_of(audited.n_users, honest, adding, 0)
    release = audited.terms.release(crowd)
    if not isinstance(release, CrowdRelease) or release.crowd.random_dummies is not None:
        return None
    return epsilon_lower(release.reduction, release.crowd, audited.task.delta) or None
