"""Open, check and store submissions: durable before they are acknowledged."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final

from common.crypto.hpke import HpkePrivateKey, envelope_context
from common.crypto.hpke_pool import HpkePool
from common.crypto.signing import SignedTask, TokenIdentity, serial_of
from common.errors import (
    BatchStateError,
    ConflictError,
    CredentialError,
    ShuffleDpError,
    TokenUsedError,
    WireError,
)
from common.messages.batch import BatchProgress, BatchState, BatchStatus
from common.messages.submission import REFUSALS, Outcome, unpack
from common.runtime.clock import Clock
from common.runtime.key_store import KeyStore
from common.task_digest import TaskDigest
from shuffler.active_batches import ActiveBatch, ActiveBatches, FinishedBatch
from shuffler.batch_states import close_request_event, next_state
from shuffler.metrics import RefusalCounts
from shuffler.storage.group import BatchKey, Group, form_from_opened, form_group
from shuffler.storage.spool import Spool
from shuffler.storage.submissions import Arrival

_CALLS_AHEAD: Final = 3
"""Bulk calls admitted per worker: one being opened, one waiting, one being stored."""

_REFUSED_AS: Final[Mapping[type[ShuffleDpError], Outcome]] = MappingProxyType(
    {
        CredentialError: Outcome.UNAUTHENTICATED,
        WireError: Outcome.MALFORMED,
        ConflictError: Outcome.CONFLICT,
        TokenUsedError: Outcome.TOKEN_USED,
        BatchStateError: Outcome.CLOSED,
    }
)
"""The outcome under which each error is counted."""

_TOKEN: Final = b"token"
"""Separates the tags of tokens from those of submission ids, which clients choose."""

_MAX_REMEMBERED: Final = 100_000
"""Maximum number of valid tokens remembered; 100,000 take some 20 MB."""


class TokenCheck:
    """Verifies tokens, and remembers the valid ones."""

    def __init__(self, identity: TokenIdentity) -> None:
        self._identity = identity
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    async def accepted(self, tokens: Sequence[bytes]) -> list[bool]:
        """Return whether each token is valid. New tokens are verified in a thread."""
        known = {token: token in self._valid for token in tokens}
        new = [token for token, valid in known.items() if not valid]
        verified = await asyncio.to_thread(self._verified, new) if new else {}
        found = [(known | verified)[token] for token in tokens]  # others may be forgotten meanwhile
        for token, valid in verified.items():
            if valid:
                self._valid[token] = None
        while len(self._valid) > _MAX_REMEMBERED:
            self._valid.popitem(last=False)
        return found

    def _verified(self, tokens: Sequence[bytes]) -> dict[bytes, bool]:
        return {token: self._identity.accepts(token) for token in tokens}

    def __repr__(self) -> str:
        return f"TokenCheck({self._identity!r})"


class Collection:
    """Collects submissions for every task of this shuffler."""

    def __init__(
        self,
        *,
        batches: ActiveBatches,
        spool: Spool,
        keys: KeyStore,
        pool: HpkePool,
        clock: Clock,
        refusals: RefusalCounts,
        tokens: TokenCheck | None = None,
    ) -> None:
        self._batches = batches
        self._spool = spool
        self._keys = keys
        self._pool = pool
        self._clock = clock
        self._refusals = refusals
        self._tokens = tokens
        self._room = asyncio.Semaphore(_CALLS_AHEAD * pool.processes)
        self._calls = 0
        """Bulk calls being opened or stored."""

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Return a task as published, fetched from the analyzer once."""
        found = await self._batches.find_or_begin(digest)
        stored = found if isinstance(found, ActiveBatch) else await self._spool.get(digest)
        return stored.signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> Outcome:
        """
        Store one submission durably before returning.

        The user's token, empty for none, is ignored unless this shuffler requires tokens.

        Returns:
            STORED, or REPEATED if the same bytes were stored before.

        Raises:
            UnknownTaskError: The analyzer has no such task.
            WireError: The envelope does not have the task's length, does not open, or holds
                another number of reports.
            ConflictError: The submission id was used with other bytes.
            BatchStateError: The batch no longer collects.
            UnknownKeyError: The task is sealed to a key that this shuffler does not hold.
            StorageError: The submission could not be stored; safe to retry.
            CredentialError: A token is required, and this one is missing or invalid.
            TokenUsedError: The token was used with another submission to this task.
        """
        found = await self._batches.find_or_begin(digest)
        try:
            outcome = await self._take(found, envelope, token)
        except tuple(_REFUSED_AS) as error:
            self._refusals.count(found.batch_id, [_REFUSED_AS[type(error)]])
            raise
        if outcome is not Outcome.STORED:
            self._refusals.count(found.batch_id, [outcome])
        return outcome

    async def _take(
        self, found: ActiveBatch | FinishedBatch, envelope: bytes, token: bytes
    ) -> Outcome:
        if isinstance(found, FinishedBatch):
            raise BatchStateError("the task's batch is over")
        if not all(await self._admitted([token])):
            raise CredentialError("this shuffler requires a valid token with every submission")
        if len(envelope) != found.task.envelope_bytes:
            raise WireError(
                f"the envelope has {len(envelope)} bytes; a submission of this task, of "
                f"{found.task.reports_per_user} reports, has {found.task.envelope_bytes}"
            )
        plaintext = self._private_key(found).open(envelope, envelope_context(found.digest))
        unpack(plaintext, found.task)
        group, _ = form_group([plaintext], found.key)
        tokens = [] if self._tokens is None else [[token]]
        [[outcome]] = await self._store(found, found.key, [group], tokens)
        if outcome is Outcome.CONFLICT:
            raise ConflictError("this submission id was used with other bytes")
        if outcome is Outcome.TOKEN_USED:
            raise TokenUsedError("this token was used for this task, with another submission")
        if outcome is Outcome.CLOSED:
            raise BatchStateError("the task's batch no longer collects")
        return outcome

    async def submit_bulk(
        self, digest: TaskDigest, envelopes: Sequence[bytes], tokens: Sequence[bytes] = ()
    ) -> list[Outcome]:
        """
        Open many submissions on all cores and store them durably before returning.

        Returns:
            The outcome of each, in order. `tokens` are empty or in the same order.

        Raises:
            StorageError: None of them was stored; safe to retry.

        Cost: opening, by the workers, and some microseconds for each; memory for the calls that
        keep the workers busy, not for those that wait.
        """
        found = await self._batches.find_or_begin(digest)
        outcomes = await self._take_bulk(found, envelopes, tokens)
        self._refusals.count(found.batch_id, outcomes)
        return outcomes

    async def _take_bulk(
        self,
        found: ActiveBatch | FinishedBatch,
        envelopes: Sequence[bytes],
        tokens: Sequence[bytes],
    ) -> list[Outcome]:
        if isinstance(found, FinishedBatch):
            return [Outcome.CLOSED] * len(envelopes)
        size = found.task.envelope_bytes
        tokens = tokens or [b""] * len(envelopes)
        admitted = await self._admitted(tokens)
        outcomes = [Outcome.MALFORMED if valid else Outcome.UNAUTHENTICATED for valid in admitted]
        fitting = [
            place
            for place, envelope in enumerate(envelopes)
            if admitted[place] and len(envelope) == size
        ]
        async with self._room:
            self._calls += 1
            try:
                opened = await self._open([envelopes[place] for place in fitting], found, found.key)
                stored = await self._store(
                    found,
                    found.key,
                    [group for group, _ in opened],
                    []
                    if self._tokens is None
                    else [[tokens[fitting[place]] for place in places] for _, places in opened],
                )
            finally:
                self._calls -= 1
        for (_, places), became in zip(opened, stored, strict=True):
            for place, outcome in zip(places, became, strict=True):
                outcomes[fitting[place]] = outcome
        return outcomes

    async def close(self, digest: TaskDigest) -> None:
        """
        Close a task's batch before its deadline, for an operator. Closing twice does nothing.

        The new state is durable before this returns.

        Raises:
            UnknownTaskError: The task was never requested.
            BatchStateError: The batch has fewer users than n_min and keeps collecting, or expired.
        """
        terms = (await self._batches.find(digest)).terms
        while True:
            stored = await self._spool.get(digest)
            event = close_request_event(stored.state, stored.n_users, terms)
            if event is None:
                return
            # The number of users only grows, so the decision still holds when it is written. If
            # the batch closed by itself meanwhile, writing fails and the loop reads it again.
            with suppress(BatchStateError):
                await self._spool.set_state(stored, next_state(stored.state, event))

    async def status(self, digest: TaskDigest) -> BatchStatus:
        """
        Return the state of a task's batch, and its number of users once it has closed.

        Raises:
            UnknownTaskError: The task was never requested.
        """
        terms = (await self._batches.find(digest)).terms
        stored = await self._spool.get(digest)
        closed = stored.state is not BatchState.COLLECTING
        return BatchStatus(
            state=stored.state,
            n_users=stored.n_users if closed else 0,
            n_min=terms.n_min,
            shuffle_seconds=stored.shuffle_seconds,
        )

    async def progress(self, digest: TaskDigest) -> BatchProgress:
        """
        Return the progress of a task's batch, also while it collects. For an operator.

        Raises:
            UnknownTaskError: The task was never requested.
        """
        found = await self._batches.find(digest)
        refused = await self._refusals.of(found.batch_id)
        stored = await self._spool.get(digest)
        return BatchProgress(
            state=stored.state,
            n_users=stored.n_users,
            n_min=found.terms.n_min,
            target_size=found.terms.target_size,
            deadline=found.terms.deadline,
            refused={outcome.value: refused[outcome] for outcome in REFUSALS if refused[outcome]},
            repeated=refused[Outcome.REPEATED],
        )

    async def _open(
        self, envelopes: Sequence[bytes], found: ActiveBatch, key: BatchKey
    ) -> list[tuple[Group, list[int]]]:
        """Open envelopes in shares; return groups, and each submission's index in `envelopes`."""
        private = self._private_key(found)
        sharers = max(1, self._pool.processes // self._calls)
        share = max(1, -(-len(envelopes) // sharers))
        starts = range(0, len(envelopes), share)
        opening = [
            asyncio.wrap_future(
                self._pool.open_and(
                    private,
                    partial(form_from_opened, raw_key=key.private_bytes()),
                    b"".join(envelopes[start : start + share]),
                    found.task.envelope_bytes,
                    envelope_context(found.digest),
                )
            )
            for start in starts
        ]
        return [
            (group, [start + place for place in places])
            for start, (group, places) in zip(starts, await asyncio.gather(*opening), strict=True)
            if len(group)
        ]

    def _private_key(self, found: ActiveBatch) -> HpkePrivateKey:
        """Return the private key that a batch's envelopes are sealed to."""
        task = found.task
        return self._keys.private_key(task.suite, task.shuffler_key, whose="shuffler_key")

    async def _admitted(self, tokens: Sequence[bytes]) -> list[bool]:
        """Return for each token whether its submission is admitted."""
        return [True] * len(tokens) if self._tokens is None else await self._tokens.accepted(tokens)

    async def _store(
        self,
        found: ActiveBatch,
        key: BatchKey,
        groups: Sequence[Group],
        tokens: Sequence[Sequence[bytes]],
    ) -> list[list[Outcome]]:
        """Store groups, with the submissions' tokens where tokens are required."""
        token_tags = [[key.tag(_TOKEN + serial_of(one)) for one in theirs] for theirs in tokens]
        in_time = self._clock.now() < found.terms.deadline
        arrival = Arrival(
            batch_id=found.batch_id,
            key=key,
            groups=groups,
            in_time=in_time,
            token_tags=token_tags,
        )
        return await self._spool.append(arrival)
