"""Collecting: from an envelope to a submission that outlives a crash."""

import asyncio
from collections.abc import Sequence

from common.batch import BatchState, BatchStatus
from common.errors import BatchStateError, SubmissionConflictError, UnknownKeyError, WireError
from common.hpke import HpkePrivateKey, envelope_context
from common.hpke_pool import Pool
from common.runtime.clock import Clock
from common.runtime.key_store import KeyStore
from common.signing import SignedTask
from common.submission import Outcome, Submission, unpack
from common.task_digest import TaskDigest
from shuffler.rounds import Round, Rounds
from shuffler.spool import Row, Spool


class Collection:
    """Takes submissions for every task of this shuffler."""

    def __init__(
        self, *, rounds: Rounds, spool: Spool, keys: KeyStore, pool: Pool, clock: Clock
    ) -> None:
        self._rounds = rounds
        self._spool = spool
        self._keys = keys
        self._pool = pool
        self._clock = clock

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Give a task's published bytes, fetched from the analyzer once."""
        return (await self._rounds.find_or_begin(digest)).signed

    async def submit(self, digest: TaskDigest, envelope: bytes) -> Outcome:
        """
        Take one submission; when this returns it is on the disk.

        Returns:
            STORED, or REPEATED if these very bytes were there.

        Raises:
            UnknownTaskError: The analyzer knows no such task.
            WireError: The envelope has not the task's length, or holds another number of reports.
            SealError: It does not open: another key, task or role, or a changed bit.
            SubmissionConflictError: The submission id was used with other bytes.
            BatchStateError: The batch no longer collects.
            UnknownKeyError: The task is sealed to a key that this shuffler does not hold.
        """
        found = await self._rounds.find_or_begin(digest)
        if len(envelope) != found.task.envelope_bytes:
            raise WireError(
                f"the envelope has {len(envelope)} bytes; a submission of this task, of "
                f"{found.task.reports_per_user} reports, has {found.task.envelope_bytes}"
            )
        plaintext = self._private_key(found).open(envelope, envelope_context(digest))
        [outcome] = await self._store(found, [unpack(plaintext, found.task)])
        if outcome is Outcome.CONFLICT:
            raise SubmissionConflictError("this submission id was used with other bytes")
        if outcome is Outcome.CLOSED:
            raise BatchStateError("the task's batch no longer collects")
        return outcome

    async def submit_bulk(self, digest: TaskDigest, envelopes: Sequence[bytes]) -> list[Outcome]:
        """
        Take many submissions, opened on all cores; when this returns they are on the disk.

        Returns:
            What became of each, in order.
        """
        found = await self._rounds.find_or_begin(digest)
        size = found.task.envelope_bytes
        outcomes = [Outcome.MALFORMED] * len(envelopes)
        places = [place for place, envelope in enumerate(envelopes) if len(envelope) == size]
        submissions = await self._open([envelopes[place] for place in places], found)
        readable = [
            (place, submission)
            for place, submission in zip(places, submissions, strict=True)
            if submission is not None
        ]
        stored = await self._store(found, [submission for _, submission in readable])
        for (place, _), outcome in zip(readable, stored, strict=True):
            outcomes[place] = outcome
        return outcomes

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

    async def _open(self, envelopes: Sequence[bytes], found: Round) -> list[Submission | None]:
        """Open envelopes of the right length, one share for each worker; None if one does not."""
        key, task = self._private_key(found), found.task
        share = max(1, -(-len(envelopes) // self._pool.processes))
        opening = [
            asyncio.wrap_future(
                self._pool.open(
                    key,
                    b"".join(envelopes[start : start + share]),
                    task.envelope_bytes,
                    envelope_context(found.digest),
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

    def _private_key(self, found: Round) -> HpkePrivateKey:
        """Give what a round's envelopes open with; once it is over, its key may be gone."""
        task = found.task
        try:
            return self._keys.private_key(task.suite, task.shuffler_key, whose="shuffler_key")
        except UnknownKeyError:
            found.held_key()
            raise

    async def _store(self, found: Round, submissions: Sequence[Submission]) -> list[Outcome]:
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
                )
                for submission in submissions
            ]
        )
