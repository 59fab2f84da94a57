"""
Whether the accountant is right: against the true δ of tiny batches, and against another program.

The true δ of a few users is found by listing every batch that can be seen. For as many users as a
task has there is another program, `second_accountant.py`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import Crowd
from common.accounting.count_distributions import Binomial
from common.accounting.epsilon_search import LEAST_EPSILON
from common.accounting.guarantees import (
    Terms,
    central_epsilon,
    claimable_epsilon,
    claimed_guarantee,
    delta_at_claim,
    guarantees,
    guarantees_under,
)
from common.crypto.signing import SigningIdentity
from common.errors import PolicyError
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.registry import mechanism_of
from common.messages.guarantee import Guarantee, claimed
from common.protocols import DummyLaw
from common.task.dummy_spec import DummySpec
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.composing import check_composing
from deploy.audit.code.second_accountant import formula_1
from deploy.audit.code.tiny import check_tiny
from deploy.audit.finding import Outcome
from deploy.audit.laws.panel import panel
from deploy.audit.laws.support_law import support_law
from deploy.audit.sample_task import sample_task
from user_agent.policy import Policy, check

_DELTA: Final = 1e-6
_SIZES: Final = (30, 1000, 60_000, 2_000_000)
_SHARES: Final = (0.5, 0.4)
"""Of users who are assumed to be honest."""
_CLAIMING: Final[dict[str, Any]] = {
    "protocol": "murs",
    "domain_size": 5,
    "buckets": 5,
    "local_epsilon": 1.0,
    "n_min": 101,
    "target_size": 1010,
}
"""So few users that the grid of the other program leaves no number of messages out."""
_NO_CAP, _SURE = 1e9, 0.9
"""Far more ε and δ than a task costs."""
_FEW: Final = 30
_QUARTERED: Final = 40
"""Of so few users a quarter is still several."""
_ROUNDING: Final = 1e-6
"""How far below the promised local ε a mechanism's integers may lie, relative to it."""
_CLOSE: Final = 0.02
"""Relative error that the grid may have in δ; and how much more ε than need be is let pass."""


def play_accountant(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Compare; nothing is drawn."""
    del rng
    checks = Checks()
    check_tiny(checks)
    for task in (audited.task, *panel()):
        if task.kind == "categorical":
            _check_reduction(checks, task)
    _check_sizes(checks)
    _check_crowds(checks)
    _check_refused_of_drawn(checks)
    check_composing(checks)
    check_task(checks, audited)
    check_arrived(checks, audited)
    _check_rows(checks)
    _check_claims(checks)
    finding = checks.finding(
        scenario="accountant",
        title="The guarantees are computed rightly",
        heading="correctness",
        coalition="analyzer",
        sentence="The promised figures are not below the truth: it was listed for tiny batches of "
        "every kind, and computed by another program for this task and for up to two million "
        "users.",
        advice="Believe no figure of this version.",
    )
    return Outcome(findings=(finding,))


def _check_reduction(checks: Checks, task: Task) -> None:
    """What the accountant is told of a mechanism follows from its law, written from the paper."""
    reduction, law = mechanism_of(task).reduction, support_law(task)
    if reduction is None:
        return
    name = task.mechanism.name
    blanket = (1 - law.own) / (1 - law.dummy)  # what says nothing supports it with chance q_dummy
    found = (reduction.answers, reduction.blanket, reduction.signal)
    for kind, figure, right in zip(
        ("answers", "blanket", "signal"), found, (1 / law.dummy, blanket, 1 - blanket), strict=True
    ):
        checks.must(
            f"{name}: {kind} as its law has it",
            math.isclose(figure, right, rel_tol=1e-6, abs_tol=1e-9),
        )
    together = law.dummy if law.independent and name != "string-hashing" else 0.0
    checks.must(
        f"{name}: how often two values collide", math.isclose(reduction.collision, together)
    )
    checks.must(
        f"{name}: its local ε",
        math.isclose(reduction.local_epsilon, task.local_epsilon, rel_tol=1e-6),
    )


def _check_sizes(checks: Checks) -> None:
    """At every size the accountant's ε is what the other program confirms."""
    for n_users in _SIZES:
        for hashed in (True, False):
            reduction = MatchCountReduction.for_epsilon(
                answers=17, local_epsilon=3.0, hashed=hashed
            )
            crowd = Crowd(users=n_users, dummies=n_users // 2)
            epsilon = epsilon_upper(reduction, crowd, _DELTA)
            checks.must(
                "the ε of crowds of every size is no less than by another program",
                formula_1(reduction, crowd, epsilon) <= _DELTA * (1 + _CLOSE),
            )
            checks.must(
                "and hardly more, at every size",
                formula_1(reduction, crowd, (1 - _CLOSE) * epsilon) > _DELTA * (1 - _CLOSE),
            )


def _check_crowds(checks: Checks) -> None:
    """Whoever was refused, skips or colludes is counted on by nobody."""
    for per_user in (0, 1, 3):
        terms = Terms(
            reduction=MatchCountReduction.for_epsilon(answers=5, local_epsilon=2.0, hashed=True),
            local_epsilon=2.0,
            dummies=DummySpec(law="fixed", per_user=per_user),
            delta=_DELTA,
            assumed_honest_fraction=0.6,
        )
        claimed = terms.crowd(1000, 7)
        checks.must("the assumed share of users, less the refused", claimed.users == 600 - 7)
        for honest, adding, refused in ((1000, 1000, 0), (1000, 400, 0), (300, 300, 11), (5, 5, 9)):
            crowd = terms.crowd_of(1000, honest, adding, refused)
            most = max(1, adding - refused) * per_user
            checks.must("honest users less the refused", crowd.users == max(1, honest - refused))
            checks.must("dummies of those who add them, less the refused", crowd.dummies <= most)
            checks.must(
                "no honest dummy forgotten", crowd.dummies >= min(most, adding * per_user - refused)
            )


def _check_refused_of_drawn(checks: Checks) -> None:
    """Dummies of which users draw the number, or which, are taken off with who was refused."""
    laws: tuple[tuple[DummyLaw, dict[str, int]], ...] = (
        ("binomial", {"trials": 4, "extra_weight": 2**31, "most": 4}),
        ("negative-binomial", {"trials": 2, "extra_weight": 2**30, "most": 9}),
        ("each-item", {"trials": 5, "extra_weight": 2**30, "most": 3}),
    )
    for law, fields in laws:
        terms = Terms(
            reduction=MatchCountReduction.for_epsilon(answers=5, local_epsilon=2.0, hashed=False),
            local_epsilon=2.0,
            dummies=DummySpec(law=law, per_user=0, **fields),
            delta=_DELTA,
            assumed_honest_fraction=1.0,
        )
        for refused in (0, 7, 60):
            crowd = terms.crowd_of(1000, 300, 200, refused)
            checks.must("honest users less the refused, of any law", crowd.users == 300 - refused)
            drawn = crowd.random_dummies
            checks.must("drawn dummies are counted", drawn is not None)
            if law == "each-item":
                left = drawn.trials if isinstance(drawn, Binomial) else -1
                checks.must("each item's dummies less the refused", left == 200 - refused)
            else:
                checks.must("refused ones may be drawn ones", crowd.known_dummies == refused)


def check_task(checks: Checks, audited: Audited) -> None:
    """The δ at the claimed ε is no more than the task's, by the other program."""
    terms, reduction = audited.terms, audited.terms.reduction
    if not isinstance(reduction, MatchCountReduction):
        return
    if not terms.shuffler.idle or not terms.dummies.uniform:
        return
    for honest in (audited.n_users, max(1, audited.n_users // 2), 30, 1):
        if honest > audited.n_users:
            continue
        crowd = terms.crowd_of(audited.n_users, honest, honest, 0)
        epsilon = central_epsilon(terms, crowd)
        if not 0 < epsilon < reduction.local_epsilon or math.isinf(epsilon):
            continue
        if not reduction.pairwise_independent and reduction.collision != 0:
            continue
        if crowd.random_dummies is not None:
            continue
        checks.must(
            "the ε of the task's batch is no less than by another program",
            formula_1(reduction, crowd, epsilon) <= terms.delta * (1 + _CLOSE),
        )
        checks.must(
            "and hardly more",
            epsilon == LEAST_EPSILON
            or formula_1(reduction, crowd, (1 - _CLOSE) * epsilon) > terms.delta * (1 - _CLOSE),
        )


def _check_claims(checks: Checks) -> None:
    """A task that counts on a share of its users claims what holds of them, and no less ε."""
    for share in _SHARES:
        task = sample_task(assumed_honest_fraction=share, **_CLAIMING)
        reduction, honest = mechanism_of(task).reduction, math.floor(share * task.n_min)
        if reduction is None:
            raise TypeError("reports of this task have no match counts")
        crowd = Crowd(users=honest, dummies=honest * task.dummies.per_user)
        claim = claimable_epsilon(task)
        right = formula_1(reduction, crowd, claim)
        checks.must(
            "a task claims no less than holds of the users whom it counts on",
            right <= task.delta * (1 + _CLOSE),
        )
        checks.must(
            "and hardly more than holds of them",
            formula_1(reduction, crowd, (1 - _CLOSE) * claim) > task.delta * (1 - _CLOSE),
        )
        found = delta_at_claim(dataclasses.replace(task, central_epsilon=claim))
        checks.must(
            "a device finds the δ of the users whom a task counts on",
            math.isclose(found, right, rel_tol=_CLOSE),
        )
        everybody = Crowd(users=task.n_min, dummies=task.n_min * task.dummies.per_user)
        too_low = epsilon_upper(reduction, everybody, task.delta)
        checks.must("a device answers a task that claims what it may", _answered(task, claim))
        checks.must(
            "a device answers no task whose claim holds if all are honest alone",
            not _answered(task, too_low),
        )


def _answered(task: Task, claim: float) -> bool:
    """Say whether a device that has no limits answers a task which claims such a central ε."""
    identity = SigningIdentity.generate()
    signed = identity.sign(dataclasses.replace(task, central_epsilon=claim).to_bytes())
    policy = Policy(
        identity=identity.public_identity(),
        local_epsilon_cap=math.inf,
        total_local_epsilon_cap=math.inf,
        total_central_epsilon_cap=_NO_CAP,
        total_delta_cap=_SURE,
        lasting_responses=True,
    )
    try:
        check(signed, signed.digest(), policy, 0.0)
    except PolicyError:
        return False
    return True


def check_arrived(checks: Checks, audited: Audited) -> None:
    """Fewer users, or refused reports: the guarantee says less."""
    task, terms = audited.task, audited.terms
    if terms.reduction is None or not terms.shuffler.idle:
        return
    n_users = max(audited.n_users, _QUARTERED)
    many = claimed_guarantee(terms, n_users).epsilon
    few = claimed_guarantee(terms, n_users // 4).epsilon
    refused = claimed_guarantee(terms, n_users, n_users // 4).epsilon
    # Nobody is promised less than the noise of one's own report, whose integers give away a hair
    # less than the task says, or more than the least ε.
    capped = many >= task.local_epsilon * (1 - _ROUNDING)
    for what, later in (
        ("fewer users are promised less", few),
        ("refused reports are taken off", refused),
    ):
        checks.must(what, later > many or capped or later == many == LEAST_EPSILON)
    by_coalition: dict[str, float] = {}
    for guarantee in guarantees(task, audited.n_users, 0):
        before = by_coalition.get(guarantee.coalition, math.inf)
        by_coalition[guarantee.coalition] = min(before, guarantee.epsilon)
    checks.must(
        "shuffler and analyzer together learn no less than the analyzer",
        by_coalition["shuffler+analyzer"] >= by_coalition["analyzer"],
    )
    checks.must(
        "no more is ever promised than one's own noise",
        by_coalition["analyzer"] <= task.local_epsilon,
    )


def _check_rows(checks: Checks) -> None:
    """What a release is charged is the claim; what hides against both parties is certain."""
    reduction = MatchCountReduction.for_epsilon(answers=5, local_epsilon=2.0, hashed=True)
    terms = Terms(
        reduction=reduction,
        local_epsilon=2.0,
        dummies=DummySpec(law="fixed", per_user=60),
        delta=_DELTA,
        assumed_honest_fraction=_SHARES[0],
    )
    rows = guarantees_under(terms, _FEW)
    checks.must(
        "a release is charged what holds of the assumed share of users",
        claimed(rows) == claimed_guarantee(terms, _FEW)
        and claimed(rows).epsilon > rows[0].epsilon
        and claimed(rows).coalition == "analyzer+users",
    )
    # Of drawn dummies shuffler and analyzer see how many came, and it may be the fewest.
    laws: tuple[tuple[DummyLaw, int], ...] = (("binomial", 60), ("fractional", 1))
    drawn = [
        DummySpec(law=law, per_user=60, trials=trials, extra_weight=2**31, most=trials)
        for law, trials in laws
    ]
    known = _against_both(rows)
    checks.must(
        "one's own dummies that are certain are counted against both parties", len(known) > 1
    )
    for dummies in drawn:
        found = guarantees_under(dataclasses.replace(terms, dummies=dummies), _FEW)
        checks.must(
            "one's own dummies that are drawn do not count against both parties",
            _against_both(found) == known,
        )
    alone = Crowd(users=1, dummies=60)
    checks.must(
        "against both parties one's own dummies hide no more than they do",
        formula_1(reduction, alone, known[-1]) <= _DELTA * (1 + _CLOSE),
    )


def _against_both(rows: Sequence[Guarantee]) -> list[float]:
    return [row.epsilon for row in rows if row.coalition == "shuffler+analyzer"]
