"""Collecting: from an envelope to a submission that outlives a crash."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from common.batch import BatchState, BatchStatus
from common.errors import (
    BatchStateError,
    SubmissionConflictError,
    TokenUsedError,
    UserTokenError,
    WireError,
)
from common.hpke import HpkePrivateKey, envelope_context
from common.hpke_pool import Pool
from common.runtime.clock import Clock
from common.signing import SignedTask
from common.submission import Outcome, Submission, unpack
from common.task import Task
from common.task_digest import TaskDigest
from common.user_token import serial_of
from shuffler.batch import after, asked_to_close
from shuffler.rounds import Round, Rounds
from shuffler.spool import Row, Spool
from shuffler.token_check import TokenCheck

_TOKEN: Final = b"token"
"""Keeps hashes of tokens apart from those of submission ids, which their senders choose."""


class Collection:
    """Takes submissions for every task of this shuffler."""

    def __init__(
        self,
        *,
        rounds: Rounds,
        spool: Spool,
        key: HpkePrivateKey,
        pool: Pool,
        clock: Clock,
        tokens: TokenCheck | None = None,
    ) -> None:
        self._rounds = rounds
        self._spool = spool
        self._key = key
        self._pool = pool
        self._clock = clock
        self._tokens = tokens

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Give a task's published bytes, fetched from the analyzer once."""
        return (await self._rounds.find_or_begin(digest)).signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> Outcome:
        """
        Take one submission; when this returns it is on the disk.

        Args:
            digest: Its task.
            envelope: The sealed submission.
            token: The user's; empty for none. It is looked at where this shuffler asks for one.

        Returns:
            STORED, or REPEATED if these very bytes were there.

        Raises:
            UnknownTaskError: The analyzer knows no such task.
            WireError: The envelope has not the task's length, or holds another number of reports.
            SealError: It does not open: another key, task or role, or a changed bit.
            SubmissionConflictError: The submission id was used with other bytes.
            BatchStateError: The batch no longer collects.
            UserTokenError: A token is asked for, and this is none.
            TokenUsedError: The token came before, with another submission to this task.
        """
        found = await self._rounds.find_or_begin(digest)
        if not all(await self._admitted([token])):
            raise UserTokenError(
                "this shuffler takes submissions with a token of its collection only"
            )
        if len(envelope) != found.task.envelope_bytes:
            raise WireError(
                f"the envelope has {len(envelope)} bytes; a submission of this task, of "
                f"{found.task.reports_per_user} reports, has {found.task.envelope_bytes}"
            )
        plaintext = self._key.open(envelope, envelope_context(digest))
        [outcome] = await self._store(found, [unpack(plaintext, found.task)], [token])
        if outcome is Outcome.CONFLICT:
            raise SubmissionConflictError("this submission id was used with other bytes")
        if outcome is Outcome.TOKEN_USED:
            raise TokenUsedError("this token was used for this task, with another submission")
        if outcome is Outcome.CLOSED:
            raise BatchStateError("the task's batch no longer collects")
        return outcome

    async def submit_bulk(
        self, digest: TaskDigest, envelopes: Sequence[bytes], tokens: Sequence[bytes] = ()
    ) -> list[Outcome]:
        """
        Take many submissions, opened on all cores; when this returns they are on the disk.

        Args:
            digest: Their task.
            envelopes: The sealed submissions.
            tokens: Their users', in the same order; or none at all.

        Returns:
            What became of each, in order.
        """
        found = await self._rounds.find_or_begin(digest)
        size = found.task.envelope_bytes
        tokens = tokens or [b""] * len(envelopes)
        admitted = await self._admitted(tokens)
        outcomes = [Outcome.MALFORMED if valid else Outcome.UNAUTHENTICATED for valid in admitted]
        places = [
            place
            for place, envelope in enumerate(envelopes)
            if admitted[place] and len(envelope) == size
        ]
        submissions = await self._open([envelopes[place] for place in places], found.task, digest)
        readable = [
            (place, submission)
            for place, submission in zip(places, submissions, strict=True)
            if submission is not None
        ]
        stored = await self._store(
            found,
            [submission for _, submission in readable],
            [tokens[place] for place, _ in readable],
        )
        for (place, _), outcome in zip(readable, stored, strict=True):
            outcomes[place] = outcome
        return outcomes

    async def close(self, digest: TaskDigest) -> None:
        """
        Close a task's batch before its deadline, for an operator. Doing it again does nothing.

        That it is closed is on the disk when this returns, and a crash does not open it again.

        Raises:
            UnknownTaskError: Nobody has asked for this task yet.
            BatchStateError: It has fewer users than n_min, and goes on collecting; or it expired.
        """
        terms = self._rounds.find(digest).terms
        while True:
            stored = await self._spool.get(digest)
            event = asked_to_close(stored.state, stored.n_users, terms)
            if event is None:
                return
            # Users only become more, so what was decided still holds when it is written. If the
            # batch closed by itself meanwhile, writing fails and it is looked at again.
            with suppress(BatchStateError):
                await self._spool.set_state(stored, after(stored.state, event))

    async def status(self, digest: TaskDigest) -> BatchStatus:
        """
        Tell how far a task's batch is, and how many users it holds once it has closed.

        Raises:
            UnknownTaskError: Nobody has asked for this task yet.
        """
        terms = self._rounds.find(digest).terms
        stored = await self._spool.get(digest)
        closed = stored.state is not BatchState.COLLECTING
        return BatchStatus(
            state=stored.state,
            n_users=stored.n_users if closed else 0,
            n_min=terms.n_min,
            shuffle_seconds=stored.shuffle_seconds,
        )

    async def _open(
        self, envelopes: Sequence[bytes], task: Task, digest: TaskDigest
    ) -> list[Submission | None]:
        """Open envelopes of the right length, one share for each worker; None if one does not."""
        share = max(1, -(-len(envelopes) // self._pool.processes))
        opening = [
            asyncio.wrap_future(
                self._pool.open(
                    b"".join(envelopes[start : start + share]),
                    task.envelope_bytes,
                    envelope_context(digest),
                )
            )
            for start in range(0, len(envelopes), share)
        ]
        submissions: list[Submission | None] = []
        for opened in await asyncio.gather(*opening):
            size = len(opened.plaintexts) // len(opened.readable)
            submissions += [
                unpack(opened.plaintexts[number * size : (number + 1) * size], task)
                if readable
                else None
                for number, readable in enumerate(opened.readable)
            ]
        return submissions

    async def _admitted(self, tokens: Sequence[bytes]) -> list[bool]:
        """Say of each token whether its submission is looked at."""
        return [True] * len(tokens) if self._tokens is None else await self._tokens.accepted(tokens)

    async def _store(
        self, found: Round, submissions: Sequence[Submission], tokens: Sequence[bytes]
    ) -> list[Outcome]:
        if found.key is None:
            return [Outcome.CLOSED] * len(submissions)
        key = found.key
        in_time = self._clock.now() < found.terms.deadline
        return await self._spool.append(
            [
                Row(
                    batch_id=found.batch_id,
                    tag=key.tag(submission.submission_id),
                    content_tag=key.tag(submission.sealed_reports),
                    sealed=key.seal(submission.sealed_reports),
                    in_time=in_time,
                    token_tag=None if self._tokens is None else key.tag(_TOKEN + serial_of(token)),
                )
                for submission, token in zip(submissions, tokens, strict=True)
            ]
        )
