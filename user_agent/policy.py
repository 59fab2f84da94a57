"""Check a task, even a signed one, and its cost against the device's own limits. Pure."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from shuffledp.common.accounting.claims import (
    check_central_claim,
    check_coalition_claim,
    check_local_claim,
)
from shuffledp.common.accounting.composition import composed_claims
from shuffledp.common.accounting.releases import PermanentRelease, lasting_basis, lasting_epsilon
from shuffledp.common.crypto.signing import KeyUse, PublicIdentity, SignedTask, check_key
from shuffledp.common.device_caps import DeviceCaps
from shuffledp.common.errors import BudgetError, PolicyError
from shuffledp.common.mechanisms.registry import rappor_of
from shuffledp.common.messages.guarantee import rounded_up, sum_upper
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The privacy cost of one answer, as claimed by its task and confirmed by this device."""

    local_epsilon: float
    central_epsilon: float
    delta: float
    coalition_epsilon: float
    """ε against the analyzer with any one shuffler; with one shuffler the local ε."""
    chained: bool = False
    """Whether the task has two shufflers, against which together there is no bound."""
    scope_hash: bytes = b""
    """Hash of a lasting question's `Task.permanent_scope`; empty for other tasks."""
    text_hash: bytes = b""
    """Keyed hash of the answer's text, by which a device notices a change; empty likewise."""
    permanent_epsilon: float = math.inf
    """ε∞ of all answers of the scope with the same text."""

    @classmethod
    def of(cls, task: Task, text_hash: bytes = b"") -> Self:
        """Return a task's claim for an answer whose text has this keyed hash."""
        names = ("local_epsilon", "central_epsilon", "delta", "coalition_epsilon")
        figures = {name: getattr(task, name) for name in names}
        claim = cls(**figures, chained=task.relay is not None)
        if not task.lasting:
            return claim
        scope = hashlib.sha256(task.permanent_scope).digest()
        most = rappor_of(task).permanent_epsilon
        return replace(claim, scope_hash=scope, text_hash=text_hash, permanent_epsilon=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(DeviceCaps):
    """A device's pinned identities and limits on one task and on all tasks together."""

    analyzer_identity: PublicIdentity
    """The pinned identity of the analyzer."""
    shuffler_identity: PublicIdentity
    """The pinned identity of the shuffler, which signs its envelope keys and receipts."""
    relay_identity: PublicIdentity | None = None
    """The pinned identity of the second shuffler, by which a person opts into tasks with two."""
    shuffler_name: str | None = None
    """Name of the first shuffler's operator; the person's own word, if there is one."""
    relay_name: str | None = None
    """Name of the second shuffler's operator, likewise."""
    issuer_identity: PublicIdentity | None = None
    """The pinned identity of the issuer of tokens; None if this device has no issuer."""
    allow_tasks_without_tokens: bool = False
    """Whether to answer tasks to which anybody may submit any number of times."""
    lasting_responses: bool = False
    """Whether to answer tasks that share permanent noise with others. Their ε assumes that the
    person's answer stays the same: a change may become visible, and no cap bounds this."""


def check(
    signed: SignedTask,
    digest: TaskDigest,
    policy: Policy,
    now: float,
    *,
    claim_confirmed: bool = False,
) -> Task:
    """
    Parse a task and check that this device may answer it. Run by the user agent.

    No claim is trusted. The task's integer weights are compared with its local ε in exact
    arithmetic; δ is recomputed at its central ε for n_min users, unless `claim_confirmed`. `now`
    is in seconds since 1970 UTC.

    Raises:
        PolicyError: The deadline has passed, a claim is false, an ε exceeds its cap, or the policy
            does not allow the task's second shuffler, permanent noise or lack of tokens, or has
            other names of its two shufflers.
        ProofError: The pinned shufflers did not sign the task's keys for envelopes and layers, or
            the pinned issuer not its key for tokens.
        ProofError, TaskError: See `Task.verified`.

    Cost: that of `check_central_claim`; little if the claim is confirmed.
    """
    task = Task.verified(signed, digest, policy.analyzer_identity)
    pinned, shuffler = policy.shuffler_identity, task.shufflers[0]
    check_key(pinned, KeyUse.ENVELOPES, task.suite, shuffler.key, shuffler.proof)
    if relay := task.relay:
        if policy.relay_identity is None:
            raise PolicyError(
                f"the task has a second shuffler, which the analyzer calls {relay.name}; to answer "
                "tasks with two, set relay_identity in this device's settings"
            )
        check_key(policy.relay_identity, KeyUse.LAYERS, task.suite, relay.key, relay.proof)
        for setting, each in zip(("shuffler_name", "relay_name"), task.shufflers, strict=True):
            if (pinned := getattr(policy, setting)) and pinned != each.name:
                raise PolicyError(
                    f"the analyzer calls a shuffler of the task {each.name}; {setting} in this "
                    f"device's settings is {pinned}"
                )
    _check_tokens(policy, task)
    if now >= task.deadline:
        raise PolicyError("the task's deadline has passed")
    if task.lasting and not policy.lasting_responses:
        raise PolicyError(
            "the task's question may be asked again, with the same permanent noise; to allow this, "
            "set lasting_responses in this device's settings"
        )
    for column in ("coalition",) if task.relay else ("local", "coalition"):
        name, epsilon = f"{column}_epsilon_cap", getattr(task, f"{column}_epsilon")
        if epsilon > getattr(policy, name):
            raise PolicyError(
                f"the task's {column} epsilon is {epsilon}; {name} is {getattr(policy, name)}. "
                f"To answer, raise {name} in this device's settings"
            )
    check_local_claim(task)
    if not claim_confirmed:
        check_central_claim(task)
        check_coalition_claim(task)
    return task


def _check_tokens(policy: Policy, task: Task) -> None:
    if task.tokens is None:
        if not policy.allow_tasks_without_tokens:
            raise PolicyError(
                "the task requires no tokens, so anybody may submit any number of times, and the "
                "analyzer could make up every answer but yours; to allow this, set "
                "allow_tasks_without_tokens in this device's settings"
            )
    elif policy.issuer_identity is None:
        raise PolicyError(
            f"the task requires tokens of the issuer {task.tokens.issuer}; set issuer, "
            "issuer_identity and credential_file in this device's settings"
        )
    else:
        task.tokens.check(policy.issuer_identity)


def check_totals(policy: Policy, spent: Sequence[Claim], claim: Claim) -> None:
    """
    Check that one more answer stays within the person's total caps. Run by the user agent.

    `spent` has the cost of every answered task, whether or not the answer arrived.

    Raises BudgetError if a cap would be exceeded.
    """
    together, delta = [*spent, claim], policy.total_delta_cap
    if local_total(together) > policy.total_local_epsilon_cap and not claim.chained:
        name, at, of_claim = "total_local_epsilon_cap", "", rounded_up(claim.local_epsilon)
        before = local_total(spent)
    else:
        for column in ("central_epsilon", "coalition_epsilon"):
            name, at = f"total_{column}_cap", f" at delta {delta}"
            if composed_total(together, delta, column) > getattr(policy, name):
                break
        else:
            return
        of_claim = f"{rounded_up(getattr(claim, column))} at delta {rounded_up(claim.delta)}"
        before = composed_total(spent, delta, column) if spent else 0.0
    tasks = "1 task" if len(spent) == 1 else f"{len(spent)} tasks"
    basis = lasting_basis(_lasting(together))
    raise BudgetError(
        f"{name} is {getattr(policy, name)}{at}; {rounded_up(before)} is spent on {tasks}, and "
        f"this one would add {of_claim}. {basis and f'{basis} '}To answer, raise {name} in this "
        "device's settings"
    )


def composed_total(claims: Sequence[Claim], delta: float, column: str = "central_epsilon") -> float:
    """
    Return the composed central or coalition ε of claims at δ, at most the sum of their local ε.

    Claims without amplification are summed, lasting questions to their ε∞ at most, and composed
    with the others as one claim, since their answers may share permanent noise. All that a lost
    counter had may have a local ε below the column's.
    """
    most = [replace(c, local_epsilon=max(c.local_epsilon, getattr(c, column))) for c in claims]
    found = [(getattr(c, column), c.delta) for c in most if getattr(c, column) < c.local_epsilon]
    if pure := [each for each in most if getattr(each, column) == each.local_epsilon]:
        found.append((_sum(pure), 0.0))
    return min(_sum(most), composed_claims(found, delta))


def local_total(claims: Iterable[Claim]) -> float:
    """
    Return the sum of claims' local ε, of which a lasting question counts at most its ε∞.

    That holds while the device finds the person's text unchanged; after a change, the answers to
    the question count by their sum. Answers with two shufflers, against which together there is no
    bound, are left out: pinning both is the person's consent. Run by the user agent.
    """
    return _sum([each for each in claims if not each.chained])


def _sum(claims: Sequence[Claim]) -> float:
    others = (each.local_epsilon for each in claims if not each.scope_hash)
    return sum_upper([lasting_epsilon(_lasting(claims)), *others])


def _lasting(claims: Iterable[Claim]) -> Iterator[PermanentRelease]:
    """Yield the releases of lasting questions, without a bound ε∞ where the text has changed."""
    lasting = [each for each in claims if each.scope_hash]
    texts = Counter(scope for scope, _ in {(each.scope_hash, each.text_hash) for each in lasting})
    for each in lasting:
        yield PermanentRelease(
            local_epsilon=each.local_epsilon,
            scope=each.scope_hash,
            permanent_epsilon=each.permanent_epsilon if texts[each.scope_hash] == 1 else math.inf,
        )
