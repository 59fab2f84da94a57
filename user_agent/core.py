"""
Answer a task: fetch and check it, charge the budget, and prepare, save and submit an answer.

An answer is randomized once, and only within the person's caps. It is saved before it is submitted,
so that every retry sends the same bytes.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from shuffledp.common import errors
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.signing import is_valid_receipt
from shuffledp.common.messages.submission import Value
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock, repeat
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.log import LogEvidence
from shuffledp.user_agent.clients import Issuer, Shuffler
from shuffledp.user_agent.contribution import Contributor
from shuffledp.user_agent.credentials import CredentialFile, PersonalSecrets
from shuffledp.user_agent.device_store import DeviceStore, SavedSubmission, SubmissionState
from shuffledp.user_agent.inclusion_monitor import InclusionMonitor
from shuffledp.user_agent.policy import Claim, Policy, check, check_totals
from shuffledp.user_agent.task_log import DeviceLog, all_evidence

_RESEND_SECONDS: Final = 30.0
"""Pause between retries of pending answers."""
_PASSING_REFUSALS: Final = frozenset({errors.CredentialError.status, errors.BudgetError.status})
"""Refusals of the issuer that another credential, or a later time, can change."""
_MAX_CONFIRMED: Final = 256
"""Maximum number of tasks whose confirmed central claim is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContributionOutcome:
    """The outcome of one call of `Agent.contribute`."""

    repeated: bool
    """Whether the task was answered before; if so, this call's value was not used."""
    local_epsilon: float
    """Local ε of the answer, as claimed by its task."""
    coalition_epsilon: float
    """ε against the analyzer with any one shuffler, likewise."""
    sent: bool
    """Whether this call submitted the answer and the shuffler acknowledged it."""


@dataclass(kw_only=True)
class Agent:
    """
    The user agent's core: answers tasks for one person or, if configured, for several.

    `monitor` checks that the answers were counted.
    """

    shuffler: Shuffler
    store: DeviceStore
    policy: Policy
    several_persons: bool
    """Whether each call names the person; each has a budget of their own."""
    clock: Clock
    rng: np.random.Generator
    secrets: PersonalSecrets | None = None
    """Required if the policy allows lasting questions, whose noise is derived from it."""
    issuer: Issuer | None = None
    credentials: CredentialFile | None = None
    """Both are required if the policy pins an issuer."""
    log: DeviceLog | None = None
    """The log that every task must be in; None to answer unlogged tasks too."""
    check_seconds: float = 3600.0
    """Average number of seconds between checks that an answer was counted."""

    def __post_init__(self) -> None:
        if self.policy.lasting_responses and self.secrets is None:
            raise errors.SettingsError("permanent responses require the device's permanent secret")
        if self.policy.issuer_identity is not None and None in (self.issuer, self.credentials):
            raise errors.SettingsError("a pinned issuer requires its address and a credential")
        self.monitor = InclusionMonitor(
            shuffler=self.shuffler,
            store=self.store,
            identity=self.policy.analyzer_identity,
            relay_identity=self.policy.relay_identity,
            clock=self.clock,
            rng=self.rng,
            pause=self.check_seconds,
        )
        self._confirmed: deque[TaskDigest] = deque(maxlen=_MAX_CONFIRMED)
        self._failures = logs.RepeatedFailures()
        self._under_way: WeakValueDictionary[tuple[str, TaskDigest], asyncio.Lock] = (
            WeakValueDictionary()
        )

    async def contribute(
        self, digest: TaskDigest, value: Value, person: str
    ) -> ContributionOutcome:
        """
        Answer a task for a person. If an answer is saved already, `value` is ignored.

        Raises:
            WireError: `person` is given to an agent of one person, or missing for several; or a key
                of the task is invalid.
            PolicyError, BudgetError: The device's policy or remaining budget forbids the task; or
                the answer was refused before.
            ProofError: A pinned party did not sign the task or one of its keys; or see
                `DeviceLog.fetch`.
            TaskError: The task is invalid.
            ValueRangeError: The value does not fit the task.
            PeerError: The shuffler or the issuer does not answer, or a receipt is invalid. If the
                answer is saved, the agent retries.
            PeerRefusalError: The shuffler or the issuer refused the call.
            SettingsError: The credential file cannot be read, or lacks the person.
            StorageError: The device's store cannot be read or written; safe to retry.
        """
        self._check_person(person)
        saved = await self.store.find(person, digest)
        repeated = saved is not None
        if saved is None:
            saved, repeated = await self._prepare(await self.task(digest), digest, value, person)
        with _explain_failure("Your submission is saved; the agent will retry"):
            sent = await self._submit(saved)
        local, coalition = saved.claim.local_epsilon, saved.claim.coalition_epsilon
        return ContributionOutcome(
            repeated=repeated, local_epsilon=local, coalition_epsilon=coalition, sent=sent
        )

    async def record(self, digest: TaskDigest, person: str) -> SavedSubmission:
        """
        Return a person's saved answer to a task.

        Raises:
            UnknownTaskError: The person has not answered the task.
            WireError: `person` is given to an agent of one person, or missing for several.
        """
        self._check_person(person)
        saved = await self.store.find(person, digest)
        if saved is None:
            raise errors.UnknownTaskError("this person has not answered a task with this digest")
        return saved

    async def log_evidence(self) -> list[LogEvidence]:
        """Return what this device saw of the log, the accepted first."""
        return await self.store.run(all_evidence)

    def _check_person(self, person: str) -> None:
        if person and not self.several_persons:
            raise errors.WireError("this agent answers for one person; it takes no name")
        if self.several_persons and not person:
            raise errors.WireError(
                "this agent answers for several people; name the person (--person)"
            )

    async def task(self, digest: TaskDigest) -> Task:
        """Fetch a task, check that this device may answer it, and remember its confirmed claim."""
        with _explain_failure("Nothing was saved or charged; try again"):
            signed = await (self.log.fetch if self.log else self.shuffler.fetch_task)(digest)
        known = digest in self._confirmed
        task = await asyncio.to_thread(
            check, signed, digest, self.policy, self.clock.now(), claim_confirmed=known
        )
        if not known:
            self._confirmed.append(digest)
        return task

    async def _prepare(
        self, task: Task, digest: TaskDigest, value: Value, person: str
    ) -> tuple[SavedSubmission, bool]:
        """Charge, prepare and save an answer in one transaction; see `DeviceStore.charge`."""
        secret = None if self.secrets is None else self.secrets.of(person)
        contributor, pending = Contributor(task, digest, secret), None
        if task.tokens is not None:
            if self.credentials is not None:
                self.credentials.of(person)  # raises SettingsError before anything is charged
            key, challenge = task.tokens.token_key(), task.tokens.challenge(digest)
            pending = PendingToken.draw(key, challenge, self.rng.bytes)
        return await self.store.charge(
            person,
            digest,
            Claim.of(task, contributor.text_hash(value)),
            partial(check_totals, self.policy),
            lambda: contributor.prepare(value, self.rng),
            pending=pending,
        )

    async def _submit(self, saved: SavedSubmission) -> bool:
        """Submit an answer, one call at a time; return False without a call if it has arrived."""
        async with self._lock_of(saved):
            latest = await self.store.find(saved.person, saved.task_digest)
            if latest is not None and latest.state is SubmissionState.ARRIVED:
                return False
            if latest is not None and latest.state is SubmissionState.REFUSED:
                raise errors.PolicyError(
                    "the answer was refused, and is not sent again; what it spends stays spent"
                )
            if saved.envelope is None:
                raise errors.PolicyError(
                    "this device answered the task before its store was restored from a backup; "
                    "it answers no task twice"
                )
            await self.store.count(saved)
            token = await self._token(saved)
            try:
                receipt = await self.shuffler.submit(saved.task_digest, saved.envelope, token)
            except errors.PeerRefusalError as error:
                # A shuffler that misjudges the token may be mended: the answer stays pending.
                if error.status != errors.CredentialError.status:
                    await self.store.mark_refused(saved)
                raise
            signer, digest = self.policy.shuffler_identity, saved.task_digest
            if not is_valid_receipt(signer, digest, saved.envelope, receipt):
                logs.event("receipt does not verify", {"task_digest": digest.hex()}, level="ERROR")
                raise errors.PeerError(
                    "the receipt is not signed by the pinned shuffler identity (shuffler_identity)"
                )
            await self.store.mark_arrived(saved, receipt)
            return True

    async def _token(self, saved: SavedSubmission) -> bytes:
        """Return the answer's token, got from the issuer at first; empty if it needs none."""
        kept = await self.store.token(saved)
        if isinstance(kept, bytes):
            return kept
        if self.clock.now() >= saved.deadline:
            await self.store.mark_refused(saved)
            raise errors.PolicyError("the task's deadline has passed, and the answer has no token")
        if self.issuer is None or self.credentials is None:
            raise errors.SettingsError(
                "the answer needs a token; set issuer in this device's settings"
            )
        credential = self.credentials.of(saved.person)
        try:
            signature = await self.issuer.issue(kept.key.key_id, kept.blinded(), credential)
        except errors.PeerRefusalError as error:
            if error.status not in _PASSING_REFUSALS:
                await self.store.mark_refused(saved)
            raise
        token = kept.finalize(signature)
        await self.store.keep_token(saved, token)
        return token

    def _lock_of(self, saved: SavedSubmission) -> asyncio.Lock:
        """Return the lock that serializes an answer's submissions; it exists only while in use."""
        return self._under_way.setdefault((saved.person, saved.task_digest), asyncio.Lock())

    async def resend_pending(self) -> None:
        """Resend each pending answer that no call is submitting; log failures, and continue."""
        for saved in await self.store.pending():
            if self._lock_of(saved).locked():
                continue
            try:
                await self._submit(saved)
            except errors.ShuffleDpError as error:  # one failure must not delay other submissions
                self._failures.failed(
                    (saved.person, saved.task_digest),
                    "submission not sent",
                    {"task_digest": saved.task_digest.hex(), "status": error.status},
                )
            else:
                self._failures.ended((saved.person, saved.task_digest))

    async def keep_resending(self) -> None:
        """Resend pending answers at start, and every half minute while the service runs."""
        await repeat(self.resend_pending, _RESEND_SECONDS, "resending failed")


@contextmanager
def _explain_failure(consequence: str) -> Iterator[None]:
    """Append `consequence` to the message of a PeerError."""
    try:
        yield
    except errors.PeerError as error:
        raise type(error)(f"{error}. {consequence}") from error
