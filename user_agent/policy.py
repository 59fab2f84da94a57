"""Check a task, even a signed one, and its cost against the device's own limits. Pure."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from common.accounting.claims import check_central_claim, check_coalition_claim, check_local_claim
from common.accounting.composition import composed_claims
from common.accounting.releases import PermanentRelease, lasting_basis, lasting_epsilon
from common.crypto.signing import KeyUse, PublicIdentity, SignedTask, check_key
from common.errors import BudgetError, PolicyError
from common.mechanisms.registry import rappor_of
from common.messages.guarantee import rounded_up, sum_upper
from common.task.task import Task
from common.task_digest import TaskDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The privacy cost of one answer, as claimed by its task and confirmed by this device."""

    local_epsilon: float
    central_epsilon: float
    delta: float
    scope_hash: bytes = b""
    """Hash of a lasting question's `Task.permanent_scope`; empty for other tasks."""
    text_hash: bytes = b""
    """Keyed hash of the answer's text, by which a device notices a change; empty likewise."""
    permanent_epsilon: float = math.inf
    """ε∞ of all answers of the scope with the same text."""

    @classmethod
    def of(cls, task: Task, text_hash: bytes = b"") -> Self:
        """Return a task's claim for an answer whose text has this keyed hash."""
        claim = cls(
            local_epsilon=task.local_epsilon, central_epsilon=task.central_epsilon, delta=task.delta
        )
        if not task.lasting:
            return claim
        scope = hashlib.sha256(task.permanent_scope).digest()
        most = rappor_of(task).permanent_epsilon
        return replace(claim, scope_hash=scope, text_hash=text_hash, permanent_epsilon=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A device's pinned identities and limits on one task and on all tasks together."""

    identity: PublicIdentity
    """The pinned identity of the analyzer."""
    shuffler_identity: PublicIdentity
    """The pinned identity of the shuffler, which signs its envelope keys and receipts."""
    issuer_identity: PublicIdentity | None = None
    """The pinned identity of the issuer of tokens; None if this device has no issuer."""
    allow_tasks_without_tokens: bool = False
    """Whether to answer tasks to which anybody may submit any number of times."""
    local_epsilon_cap: float
    """Maximum local ε of one answer. If infinite, tasks without local noise are answered too."""
    total_local_epsilon_cap: float = 20.0
    """Maximum sum of the local ε of all answers of a person."""
    total_central_epsilon_cap: float = 1.0
    """Maximum composed central ε of all answers of a person, at total_delta_cap."""
    total_delta_cap: float = 1e-4
    permanent_responses: bool = False
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
        PolicyError: The deadline has passed, a claim is false, the local ε exceeds the cap, or the
            policy does not allow the task's permanent noise or its lack of tokens.
        ProofError: The pinned shuffler did not sign the task's key for envelopes, or the pinned
            issuer not its key for tokens.
        ProofError, TaskError: See `Task.verified`.

    Cost: that of `check_central_claim`; little if the claim is confirmed.
    """
    task = Task.verified(signed, digest, policy.identity)
    pinned, proof = policy.shuffler_identity, task.shuffler_key_proof
    check_key(pinned, KeyUse.ENVELOPES, task.suite, task.shuffler_key, proof)
    _check_tokens(policy, task)
    if now >= task.deadline:
        raise PolicyError("the task's deadline has passed")
    if task.lasting and not policy.permanent_responses:
        raise PolicyError(
            "the task's question may be asked again, with the same permanent noise; to allow this, "
            "set lasting_responses in this device's settings"
        )
    if task.local_epsilon > policy.local_epsilon_cap:
        raise PolicyError(
            f"the task's local epsilon is {task.local_epsilon}; "
            f"local_epsilon_cap is {policy.local_epsilon_cap}. To answer, raise local_epsilon_cap "
            "in this device's settings"
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
    if local_total(together) > policy.total_local_epsilon_cap:
        name, at, of_claim = "total_local_epsilon_cap", "", rounded_up(claim.local_epsilon)
        before = local_total(spent)
    elif composed_total(together, delta) > policy.total_central_epsilon_cap:
        name, at = "total_central_epsilon_cap", f" at delta {delta}"
        of_claim = f"{rounded_up(claim.central_epsilon)} at delta {rounded_up(claim.delta)}"
        before = composed_total(spent, delta) if spent else 0.0
    else:
        return
    tasks = "1 task" if len(spent) == 1 else f"{len(spent)} tasks"
    basis = lasting_basis(_lasting(together))
    raise BudgetError(
        f"{name} is {getattr(policy, name)}{at}; {rounded_up(before)} is spent on {tasks}, and "
        f"this one would add {of_claim}. {basis and f'{basis} '}To answer, raise {name} in this "
        "device's settings"
    )


def composed_total(claims: Sequence[Claim], delta: float) -> float:
    """
    Return the composed central ε of claims at δ, at most their `local_total`.

    Claims without amplification are summed, lasting questions to their ε∞ at most, and composed
    with the others as one claim, since their answers may share permanent noise.
    """
    central = [(c.central_epsilon, c.delta) for c in claims if c.central_epsilon < c.local_epsilon]
    if len(central) < len(claims):
        pure = [each for each in claims if each.central_epsilon >= each.local_epsilon]
        rest = (each.central_epsilon for each in pure if not each.scope_hash)
        central.append((sum_upper([lasting_epsilon(_lasting(pure)), *rest]), 0.0))
    return min(local_total(claims), composed_claims(central, delta))


def local_total(claims: Iterable[Claim]) -> float:
    """
    Return the sum of claims' local ε, of which a lasting question counts at most its ε∞.

    That holds while the device finds the person's text unchanged; after a change, the answers to
    the question count by their sum. Run by the user agent.
    """
    claims = list(claims)
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
