"""Open and check submissions, and store them durably before acknowledging them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from shuffledp.common import errors
from shuffledp.common.crypto.hpke import envelope_context
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.crypto.privacy_tokens import nonce_of
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.batch import BatchProgress
from shuffledp.common.messages.submission import REFUSALS, Outcome
from shuffledp.common.task.task import Task, listed
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.active_batches import ActiveBatch, FinishedBatch
from shuffledp.shuffler.admission import ConnectionLimit, TokenCheck
from shuffledp.shuffler.batch_operations import BatchOperations
from shuffledp.shuffler.refusals import RefusalCounts
from shuffledp.shuffler.storage.group import Arrival, Group, form_group
from shuffledp.shuffler.storage.submission_store import SubmissionStore

_CALLS_AHEAD: Final = 3
"""Bulk calls admitted per worker: one being opened, one waiting, one being stored."""

_ERRORS: Final[Mapping[Outcome, tuple[type[errors.ShuffleDpError], str]]] = MappingProxyType(
    {
        Outcome.MALFORMED: (
            errors.WireError,
            "the envelope does not open: it was changed, or sealed to another key or task",
        ),
        Outcome.CONFLICT: (errors.ConflictError, "this submission id was used with other bytes"),
        Outcome.TOKEN_USED: (
            errors.TokenUsedError,
            "this token was used for this task, with another submission",
        ),
        Outcome.CLOSED: (errors.BatchStateError, "the task's batch no longer collects"),
    }
)
"""Errors that `submit` raises for refused submissions; `submit_bulk` returns the outcomes."""

T = TypeVar("T")

_FEW: Final = 8
"""Tokens that are verified here, which is faster than asking a worker."""
_TOKEN: Final = b"token"
"""Prefix that separates tags of tokens from tags of submission ids, which clients choose."""


@dataclass(kw_only=True)
class Collection(BatchOperations):
    """Collects submissions for every task of this shuffler."""

    store: SubmissionStore
    pool: HpkePool
    refusals: RefusalCounts
    connections: ConnectionLimit

    def __post_init__(self) -> None:
        self._bulk_slots = asyncio.Semaphore(_CALLS_AHEAD * self.pool.processes)
        self._bulk_calls = 0
        """Number of bulk calls whose tokens or envelopes are in the workers."""

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """
        Return a task as published, fetched from the analyzer once.

        Raises the errors of Batches.find_or_begin.
        """
        batch = await self.batches.find_or_begin(digest)
        stored = batch if isinstance(batch, ActiveBatch) else await self.store.get(digest)
        return stored.signed

    async def submit(
        self, digest: TaskDigest, envelope: bytes, token: bytes = b"", *, peer: str = ""
    ) -> Outcome:
        """
        Open one submission and store it durably before returning.

        The token, empty for none, is ignored unless the task requires tokens; the `peer`, which
        identifies the connection, is ignored if it does.

        Returns:
            STORED, or REPEATED if the same bytes were stored before.

        Raises:
            WireError: The envelope does not have the task's length, or does not open.
            ConflictError: The submission id was used with other bytes.
            BatchStateError: The batch no longer collects, or its key is lost.
            CredentialError: A token is required, and this one is missing or invalid.
            ConnectionLimitError: The connection has made too many submissions without tokens.
            TokenUsedError: The token was used with another submission to this task.
            StorageError: The submission could not be stored; safe to retry.
            ShuffleDpError: The task cannot be collected; see Batches.find_or_begin.
        """
        batch = await self.batches.find_or_begin(digest)
        [outcome] = await self._take(batch, [envelope], [token], peer, here=True)
        if isinstance(batch, ActiveBatch):
            if outcome is Outcome.MALFORMED:
                check_length(envelope, batch.task)
            if outcome is Outcome.UNAUTHENTICATED and (tokens := batch.task.tokens):
                raise errors.CredentialError(TokenCheck(tokens, digest).explain(token))
        if outcome in _ERRORS:
            error, message = _ERRORS[outcome]
            raise error(message)
        return outcome

    async def submit_bulk(
        self,
        digest: TaskDigest,
        envelopes: Sequence[bytes],
        tokens: Sequence[bytes] = (),
        *,
        peer: str = "",
    ) -> list[Outcome]:
        """
        Open many submissions on all cores and store them durably before returning.

        `tokens` is empty, or has one token per envelope.

        Returns:
            The outcome of each submission, in order.

        Raises:
            WireError: The call has more submissions without tokens than a connection may make.
            StorageError: Nothing was stored; safe to retry.
            ConnectionLimitError: The connection has made too many submissions without tokens.
            ShuffleDpError: The task cannot be collected; see Batches.find_or_begin.

        Cost: opening the envelopes in the workers, and microseconds per submission. Calls that wait
        for a worker hold only their envelopes in memory.
        """
        batch = await self.batches.find_or_begin(digest)
        tokens = tokens or [b""] * len(envelopes)
        async with self._bulk_slots:
            return await self._take(batch, envelopes, tokens, peer, here=False)

    async def _take(
        self,
        batch: ActiveBatch | FinishedBatch,
        envelopes: Sequence[bytes],
        tokens: Sequence[bytes],
        peer: str,
        *,
        here: bool,
    ) -> list[Outcome]:
        """Open and store submissions; return their outcomes, and count all but STORED."""
        if isinstance(batch, FinishedBatch):
            outcomes = [Outcome.CLOSED] * len(envelopes)
        else:
            if batch.task.tokens is None:
                self.connections.take(peer, len(envelopes))
            outcomes = await self._open_and_store(batch, envelopes, tokens, here=here)
        self.refusals.count(batch.batch_id, outcomes)
        return outcomes

    async def _open_and_store(
        self, batch: ActiveBatch, envelopes: Sequence[bytes], tokens: Sequence[bytes], *, here: bool
    ) -> list[Outcome]:
        outcomes, sizes = [Outcome.MALFORMED] * len(envelopes), set(batch.task.envelope_sizes)
        fitting = [index for index, envelope in enumerate(envelopes) if len(envelope) in sizes]
        if batch.task.tokens is not None:
            check = TokenCheck(batch.task.tokens, batch.digest)
            given = [tokens[index] for index in fitting]
            valid = (
                check.are_valid(given) if len(given) < _FEW else await self._verify(check, given)
            )
            for index, admitted in zip(fitting, valid, strict=True):
                outcomes[index] = Outcome.MALFORMED if admitted else Outcome.UNAUTHENTICATED
            fitting = [index for index, admitted in zip(fitting, valid, strict=True) if admitted]
        if not fitting:
            return outcomes
        try:
            opened = await self._open(batch, [envelopes[index] for index in fitting], here=here)
        except errors.BatchStateError:  # it was permuted while this call waited
            return [Outcome.CLOSED] * len(envelopes)
        indices = [[fitting[index] for index in of_group] for _, of_group in opened]
        group_tokens = [[tokens[index] for index in of_group] for of_group in indices]
        stored = await self._store_groups(batch, [group for group, _ in opened], group_tokens)
        for of_group, group_outcomes in zip(indices, stored, strict=True):
            for index, outcome in zip(of_group, group_outcomes, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def progress(self, digest: TaskDigest) -> BatchProgress:
        """
        Return the progress of a task's batch, even while it collects. For an operator.

        Raises the errors of `Batches.find`.
        """
        batch = await self.batches.find(digest)
        await self.refusals.load()
        refused = self.refusals.of(batch.batch_id)
        stored = await self.store.get(digest)
        return BatchProgress(
            state=stored.state,
            n_users=stored.n_users,
            n_min=batch.closing_rule.n_min,
            target_size=batch.closing_rule.target_size,
            deadline=batch.closing_rule.deadline,
            refused={outcome.value: refused[outcome] for outcome in REFUSALS if refused[outcome]},
            repeated=refused[Outcome.REPEATED],
        )

    async def _open(
        self, batch: ActiveBatch, envelopes: Sequence[bytes], *, here: bool
    ) -> list[tuple[Group, list[int]]]:
        """
        Open envelopes in workers or `here`, which is faster for a few.

        Returns groups of the submissions that opened, and the index of each one's envelope.
        """
        private, context = self.batches.envelope_key(batch), envelope_context(batch.digest)
        form = partial(form_group, raw_key=batch.key.private_bytes())
        if here:
            return [form(list(map(private.opener(context), envelopes)))]
        shares = await self._in_workers(
            len(envelopes), lambda part: self.pool.open_and(private, form, envelopes[part], context)
        )
        return [(group, [start + index for index in indices]) for start, (group, indices) in shares]

    async def _verify(self, check: TokenCheck, tokens: Sequence[bytes]) -> list[bool]:
        """Verify tokens in workers, since this process answers all calls."""
        shares = await self._in_workers(
            len(tokens), lambda part: self.pool.submit(check.are_valid, tokens[part])
        )
        return [valid for _, of_share in shares for valid in of_share]

    async def _in_workers(
        self, count: int, submit: Callable[[slice], Future[T]]
    ) -> list[tuple[int, T]]:
        """Split `count` items evenly over this call's fair part of the workers."""
        self._bulk_calls += 1
        try:
            share = -(-count // max(1, self.pool.processes // self._bulk_calls))
            starts = range(0, count, share)
            parts = [asyncio.wrap_future(submit(slice(at, at + share))) for at in starts]
            return list(zip(starts, await asyncio.gather(*parts), strict=True))
        finally:
            self._bulk_calls -= 1

    async def _store_groups(
        self, batch: ActiveBatch, groups: Sequence[Group], tokens: Sequence[Sequence[bytes]]
    ) -> list[list[Outcome]]:
        """Store groups, and spend their submissions' tokens if the task requires tokens."""
        if not any(groups):  # nothing opened, so nothing to commit
            return [[] for _ in groups]
        arrival = Arrival(
            batch_id=batch.batch_id,
            key=batch.key,
            groups=groups,
            deadline=batch.closing_rule.deadline,
            token_tags=()
            if batch.task.tokens is None
            else [[batch.key.tag(_TOKEN + nonce_of(token)) for token in group] for group in tokens],
        )
        return await self.store.append(arrival)


def check_length(envelope: bytes, task: Task) -> None:
    """Raise WireError unless an envelope has one of the task's lengths."""
    if len(envelope) not in task.envelope_sizes:
        raise errors.WireError(
            f"the envelope has {len(envelope)} bytes; a submission of this task, of "
            f"{listed(task.lengths)} reports, has {listed(task.envelope_sizes)}"
        )
