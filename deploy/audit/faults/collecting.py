"""Faults of the shuffler in what it takes, counts, signs for, and keeps through a restart."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

import shuffler.collection
import shuffler.states
import shuffler.storage.deduplication
import shuffler.storage.submissions
from common.crypto.receipt import sign_bulk_receipt
from common.errors import PeerError
from common.messages.batch import BatchState
from common.messages.submission import Outcome
from common.runtime.state_directory import StateDirectory
from common.task.task import SUBMISSION_ID_BYTES, Task
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.active_batches import Rounds
from shuffler.admission import ConnectionCount
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.inclusion import Sent
from shuffler.servicer import Receipts
from shuffler.states import Event, Terms
from shuffler.storage.batch_key import BatchKey
from shuffler.storage.deduplication import Deduplication
from shuffler.storage.spool import Spool, StoredBatch
from shuffler.storage.submissions import Arrival

_UNDER_WAY: Final[set[asyncio.Future[Any]]] = set()
"""What a shuffler that does not wait for it has begun."""
_TOKEN: Final = b"token"
"""What the shuffler puts before a token's serial number."""


def acknowledged_early() -> AbstractContextManager[None]:
    """Plant a shuffler that acknowledges bulk calls before they are on the disk."""
    honest: Any = Spool.append

    async def other(self: Spool, arrival: Arrival) -> list[list[Outcome]]:
        writing = asyncio.ensure_future(honest(self, arrival))
        if sum(len(group) for group in arrival.groups) == 1:
            alone: list[list[Outcome]] = await writing
            return alone
        _UNDER_WAY.add(writing)
        writing.add_done_callback(_UNDER_WAY.discard)
        return [[Outcome.STORED] * len(group) for group in arrival.groups]

    return planting.attribute(Spool, "append", other)


class _Forgetful(dict[bytes, bytes]):
    """Takes note of nothing new."""

    def __setitem__(self, key: bytes, value: bytes) -> None:
        """Do nothing."""


def repeats_in_a_call() -> AbstractContextManager[None]:
    """Plant a shuffler that compares submissions with those of earlier calls alone."""
    honest: Any = shuffler.storage.deduplication._compared

    def other(tags: bytes, known: dict[bytes, bytes], *rest: Any, **named: Any) -> Any:
        return honest(tags, _Forgetful(known), *rest, **named)

    return planting.function(honest, other)


def ids_by_prefix() -> AbstractContextManager[None]:
    """Plant a shuffler that takes ids of the same first half for the same."""
    honest: Any = BatchKey.tag

    def other(self: BatchKey, content: bytes) -> bytes:
        half = len(content) // 2 if len(content) == SUBMISSION_ID_BYTES else len(content)
        tag: bytes = honest(self, content[:half])
        return tag

    return planting.attribute(BatchKey, "tag", other)


def forgotten_at_restart() -> AbstractContextManager[None]:
    """Plant a shuffler that takes up a batch, and none of its submissions' names."""
    return planting.function(shuffler.storage.submissions._load_tags, lambda *_: Deduplication())


def bulk_tokens_unchecked() -> AbstractContextManager[None]:
    """Plant a shuffler that looks at the tokens of submissions that come alone."""
    honest: Any = Collection._admitted

    async def other(self: Collection, tokens: Sequence[bytes]) -> list[bool]:
        if len(tokens) > 1:
            return [True] * len(tokens)
        alone: list[bool] = await honest(self, tokens)
        return alone

    return planting.attribute(Collection, "_admitted", other)


def conflicts_acknowledged() -> AbstractContextManager[None]:
    """Plant a shuffler that says of other bytes under a used id that it has them."""
    honest: Any = Collection.submit_bulk

    async def other(self: Collection, *given: Any) -> list[Outcome]:
        became = await honest(self, *given)
        return [Outcome.REPEATED if one is Outcome.CONFLICT else one for one in became]

    return planting.attribute(Collection, "submit_bulk", other)


def bulk_tokens_unused() -> AbstractContextManager[None]:
    """Plant a shuffler that does not write down which tokens came with bulk calls."""
    honest: Any = Collection._store

    async def other(self: Collection, found: Any, key: Any, groups: Any, tokens: Any) -> Any:
        if sum(map(len, groups)) > 1:
            tokens = [[secrets.token_bytes(len(one)) for one in theirs] for theirs in tokens]
        return await honest(self, found, key, groups, tokens)

    return planting.attribute(Collection, "_store", other)


def serials_kept() -> AbstractContextManager[None]:
    """Plant a shuffler that writes the serial numbers of used tokens down."""
    honest: Any = BatchKey.tag

    def other(self: BatchKey, content: bytes) -> bytes:
        found: bytes = honest(self, content)
        return content.removeprefix(_TOKEN) if content[: len(_TOKEN)] == _TOKEN else found

    return planting.attribute(BatchKey, "tag", other)


def minimum_ignored() -> AbstractContextManager[None]:
    """Plant a shuffler that forgets the minimum that its operator has set."""
    honest: Any = Rounds._terms

    def other(self: Rounds, task: Task) -> Terms:
        terms: Terms = replace(honest(self, task), n_min=task.n_min)
        return terms

    return planting.attribute(Rounds, "_terms", other)


def one_below_n_min() -> AbstractContextManager[None]:
    """Plant a shuffler that closes batches of one user fewer than n_min."""

    def fewer(honest: Any) -> AbstractContextManager[None]:
        def other(state: BatchState, n_users: int, terms: Terms, *now: float) -> Any:
            return honest(state, n_users, replace(terms, n_min=terms.n_min - 1), *now)

        return planting.function(honest, other)

    return planting.both(fewer(shuffler.states.due), fewer(shuffler.states.asked_to_close))


def late_ones_taken() -> AbstractContextManager[None]:
    """Plant a shuffler that takes submissions after the deadline, until the batch is closed."""
    return planting.attribute(
        shuffler.collection, "Arrival", lambda **fields: Arrival(**fields | {"in_time": True})
    )


def thousandfold_share() -> AbstractContextManager[None]:
    """Plant a shuffler that takes a thousand times a connection's share."""
    honest: Any = ConnectionCount.__init__
    return planting.attribute(
        ConnectionCount, "__init__", lambda self, most: honest(self, 1000 * most)
    )


def no_bulk_receipt() -> AbstractContextManager[None]:
    """Plant a shuffler that signs nothing for bulk calls."""
    return planting.attribute(Receipts, "bulk", lambda *_: b"")


def refused_ones_signed() -> AbstractContextManager[None]:
    """Plant a shuffler whose bulk receipts are for what it has refused too."""

    def other(self: Receipts, digest: Any, envelopes: Sequence[bytes], _: object) -> bytes:
        return sign_bulk_receipt(self._identity, digest, envelopes)

    return planting.attribute(Receipts, "bulk", other)


@contextmanager
def expired_revived() -> Iterator[None]:
    """Plant a shuffler that keeps what has expired, and delivers it when it starts again."""
    drop: Any = Spool.drop
    kept: Any = Spool.kept

    async def other_drop(self: Spool, batch: StoredBatch, state: BatchState) -> None:
        if state is BatchState.EXPIRED:
            await self.set_state(batch, state)
        else:
            await drop(self, batch, state)

    async def other_kept(self: Spool) -> list[StoredBatch]:
        def revive(connection: Any) -> None:
            connection.execute("UPDATE batches SET state = 'closed' WHERE state = 'expired'")

        await self._database.run(revive)
        found: list[StoredBatch] = await kept(self)
        return found

    with (
        planting.attribute(Spool, "drop", other_drop),
        planting.attribute(Spool, "kept", other_kept),
        planting.attribute(StateDirectory, "destroy", lambda *_: None),
    ):
        yield


def another_order_each_time() -> AbstractContextManager[None]:
    """Plant a shuffler that draws another order for each attempt to deliver."""
    honest: Any = Sent.passing

    async def other(self: Sent, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in honest(self, chunks):
            starts = list(range(0, len(chunk), self._size))
            secrets.SystemRandom().shuffle(starts)
            yield b"".join([chunk[start : start + self._size] for start in starts])

    return planting.attribute(Sent, "passing", other)


def delivered_twice() -> AbstractContextManager[None]:
    """Plant a shuffler that delivers once more what the analyzer has acknowledged."""
    honest: Any = Deliveries._deliver

    async def other(self: Deliveries, stored: StoredBatch, found: Any) -> Event:
        await honest(self, stored, found)
        event: Event = await honest(self, stored, found)
        return event

    return planting.attribute(Deliveries, "_deliver", other)


def erased_unacknowledged() -> AbstractContextManager[None]:
    """Plant a shuffler that erases a batch whether or not the analyzer has answered."""
    honest: Any = Deliveries._deliver

    async def other(self: Deliveries, stored: StoredBatch, found: Any) -> Event:
        try:
            event: Event = await honest(self, stored, found)
        except PeerError:
            return Event.DELIVER
        return event

    return planting.attribute(Deliveries, "_deliver", other)


COLLECTING: Final = (
    Fault(
        name="acknowledged-early",
        says="the shuffler acknowledges bulk calls before they are on the disk",
        scenario="restarts",
        check="what comes in bulk is not acknowledged before it is on the disk",
        plant=acknowledged_early,
    ),
    Fault(
        name="repeats-in-a-call",
        says="a submission that stands twice in one call counts as two users",
        scenario="bulk-clients",
        check="what stands several times in one call counts once",
        plant=repeats_in_a_call,
    ),
    Fault(
        name="ids-by-prefix",
        says="submissions whose ids begin alike are taken for one",
        scenario="bulk-clients",
        check="ids that differ in one byte are different ids",
        plant=ids_by_prefix,
    ),
    Fault(
        name="forgotten-at-restart",
        says="after a restart every submission that comes again is a new user",
        scenario="restarts",
        check="what came before a restart is known after it",
        plant=forgotten_at_restart,
    ),
    Fault(
        name="bulk-tokens-unchecked",
        says="the tokens of bulk calls are not looked at",
        scenario="bulk-clients",
        check="the last is taken",
        plant=bulk_tokens_unchecked,
    ),
    Fault(
        name="conflicts-acknowledged",
        says="other bytes under a used id are acknowledged in bulk calls, though they are lost",
        scenario="services",
        check="refused, each for its own cause",
        plant=conflicts_acknowledged,
    ),
    Fault(
        name="bulk-tokens-unused",
        says="tokens of bulk calls can be used again",
        scenario="bulk-clients",
        check="a token that stands several times in one call counts once",
        plant=bulk_tokens_unused,
    ),
    Fault(
        name="serials-kept",
        says="the shuffler writes serial numbers of tokens down",
        scenario="bulk-clients",
        check="no serial number of a token is on the disk",
        plant=serials_kept,
    ),
    Fault(
        name="minimum-ignored",
        says="the shuffler forgets the minimum that its operator has set",
        scenario="thresholds",
        check="fewer users than the shuffler's own minimum",
        plant=minimum_ignored,
    ),
    Fault(
        name="one-below-n-min",
        says="the shuffler closes batches of one user fewer than n_min",
        scenario="thresholds",
        check="one of one user fewer expires at its deadline",
        plant=one_below_n_min,
    ),
    Fault(
        name="late-ones-taken",
        says="the shuffler takes submissions after the deadline",
        scenario="thresholds",
        check="at the deadline none is taken",
        plant=late_ones_taken,
    ),
    Fault(
        name="thousandfold-share",
        says="a connection may make a thousand times its share of submissions",
        scenario="thresholds",
        check="one more than its share is refused",
        plant=thousandfold_share,
    ),
    Fault(
        name="no-bulk-receipt",
        says="bulk calls get no receipt",
        scenario="bulk-clients",
        check="one receipt is for all that are stored",
        plant=no_bulk_receipt,
    ),
    Fault(
        name="refused-ones-signed",
        says="a bulk receipt is for what was refused too",
        scenario="bulk-clients",
        check="where nothing is stored nothing is signed",
        plant=refused_ones_signed,
    ),
    Fault(
        name="expired-revived",
        says="a batch of too few users is delivered after a restart",
        scenario="restarts",
        check="a batch that expired is never delivered",
        plant=expired_revived,
    ),
    Fault(
        name="another-order-each-time",
        says="a batch that is delivered again is permuted again",
        scenario="restarts",
        check="the same order is delivered, byte for byte",
        plant=another_order_each_time,
    ),
    Fault(
        name="delivered-twice",
        says="the shuffler delivers a batch once more than it must",
        scenario="restarts",
        check="it is delivered until it is acknowledged, and then no more",
        plant=delivered_twice,
    ),
    Fault(
        name="erased-unacknowledged",
        says="the shuffler erases batches that the analyzer has not acknowledged",
        scenario="restarts",
        check="a batch that the analyzer has not acknowledged is kept",
        plant=erased_unacknowledged,
    ),
)
