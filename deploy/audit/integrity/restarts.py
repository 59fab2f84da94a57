"""A shuffler that stops and is started again: nothing is lost, doubled, or drawn anew."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

import numpy as np

from common.errors import BatchStateError, DamagedStorageError
from common.messages.batch import BatchState
from common.messages.submission import Outcome as Became
from common.task.task import SUBMISSION_ID_BYTES, Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.integrity.playthrough import Rows, played, refused, taken
from deploy.audit.integrity.shuffler_site import DEADLINE, ShufflerSite, users
from deploy.audit.integrity.spool_file import change, locked, rows

_SCENARIO: Final = "restarts"
_PATIENCE: Final = 0.1
"""Seconds in which nobody may answer: whoever does not wait for the disk answers in fewer."""

_LENGTH_BYTES: Final = 4


def restarts(audited: Audited, rng: np.random.Generator) -> Outcome:
    """The shuffler is started again while it collects, before it delivers, and after a batch."""
    return Outcome(findings=played(_started_again, audited, rng))


async def _started_again(task: Task, rng: np.random.Generator) -> Rows:
    return (
        await _collecting(task, rng),
        await _permuted(task, rng),
        await _altered(task, rng),
        await _expired(task, rng),
    )


async def _collecting(task: Task, rng: np.random.Generator) -> Finding:
    checks, own_id = Checks(), rng.bytes(SUBMISSION_ID_BYTES)
    async with ShufflerSite.begun(rng) as site:
        async with site.shuffler() as shuffler:
            sender, collection = await site.publish(task, shuffler), shuffler.collection
            own, changed = sender.envelope(own_id), sender.envelope(own_id)
            await collection.submit(sender.digest, own)
            alone, *others = sender.envelopes(3)
            for how, call in (
                ("alone", lambda: collection.submit(sender.digest, alone)),
                ("in bulk", lambda: collection.submit_bulk(sender.digest, others)),
            ):
                checks.must(
                    f"what comes {how} is not acknowledged before it is on the disk",
                    await _waits_for_the_disk(site, call()),
                )
            counted = rows(site.spool, "SELECT n_users FROM batches")
            checks.must("what is acknowledged is on the disk", counted == [(4,)])
        async with site.shuffler() as shuffler:
            collection = shuffler.collection
            sent = [own, changed, *others]
            became = await collection.submit_bulk(sender.digest, sent)
            checks.must(
                "what came before a restart is known after it",
                became == [Became.REPEATED, Became.CONFLICT, Became.REPEATED, Became.REPEATED],
            )
            again = await collection.submit(sender.digest, alone)
            checks.must("what came before a restart is known after it", again is Became.REPEATED)
            checks.must("no user is counted twice", await users(shuffler, sender) == 4)  # noqa: PLR2004  # all four
            [became_of_new] = await collection.submit_bulk(sender.digest, [sender.envelope()])
            checks.must("who comes after it is taken", became_of_new is Became.STORED)
    return _row(
        checks,
        "started again while it collects",
        "The shuffler acknowledges a submission once it is on the disk, and counts one that comes "
        "again after a restart once.",
    )


async def _waits_for_the_disk(site: ShufflerSite, call: Awaitable[object]) -> bool:
    """Say whether a call gets no answer while nothing can be written; then let it end."""
    pending = asyncio.ensure_future(call)
    with locked(site.spool):
        await asyncio.wait({pending}, timeout=_PATIENCE)
        waits = not pending.done()
    await pending
    return waits


async def _permuted(task: Task, rng: np.random.Generator) -> Finding:
    checks = Checks()
    async with ShufflerSite.begun(rng) as site:
        inbox = site.inbox
        inbox.away = True
        async with site.shuffler() as shuffler:
            sender = await site.publish(task, shuffler)
            await shuffler.collection.submit_bulk(sender.digest, sender.envelopes(task.n_min))
            closing = shuffler.collection.close(sender.digest)
            checks.must(
                "all who were acknowledged are in the batch when it is closed",
                await taken(closing),
            )
            await shuffler.deliveries.advance()
            waiting = [await shuffler.collection.progress(sender.digest)]
        async with site.shuffler() as shuffler:
            await shuffler.deliveries.advance()
            waiting.append(await shuffler.collection.progress(sender.digest))
            checks.must(
                "a batch that the analyzer has not acknowledged is kept",
                [one.state for one in waiting] == [BatchState.PERMUTED] * 2,
            )
            inbox.away = False
            await shuffler.deliveries.advance()
            ended = await shuffler.collection.progress(sender.digest)
            checks.must("it is erased once it is", ended.state is BatchState.ERASED)
            await shuffler.deliveries.advance()
        async with site.shuffler() as shuffler:
            await shuffler.deliveries.advance()
    checks.must("it is delivered until it is acknowledged, and then no more", _once(site))
    checks.must(
        "before that nothing says that it is delivered",
        set(inbox.states) == {BatchState.PERMUTED.value},
    )
    checks.must(
        "after a restart the same order is delivered, byte for byte",
        all(one == inbox.attempts[0] for one in inbox.attempts),
    )
    return _row(
        checks,
        "started again before the analyzer has acknowledged the batch, and after",
        "The order of a batch is drawn once, and the batch is delivered in it until the analyzer "
        "has acknowledged it: whoever sees two deliveries cannot compare two orders.",
    )


def _once(site: ShufflerSite) -> bool:
    """Say whether there were two attempts without an answer, and one with."""
    return (len(site.inbox.attempts), len(site.inbox.acknowledged)) == (3, 1)


async def _altered(task: Task, rng: np.random.Generator) -> Finding:
    """Alter the task that lies in the database, and cut the order that waits to be delivered."""
    checks = Checks()
    async with ShufflerSite.begun(rng) as site:
        inbox, clients = site.inbox, task.n_min
        inbox.away = True
        async with site.shuffler() as shuffler:
            sender = await site.publish(task, shuffler)
            await shuffler.collection.submit_bulk(sender.digest, sender.envelopes(clients))
            closing = shuffler.collection.close(sender.digest)
            checks.must("a batch of enough users closes", await taken(closing))
            await shuffler.deliveries.advance()
        [(whole,)] = rows(site.spool, "SELECT task FROM batches")
        lower = replace(sender.task, n_min=task.n_min - 1).to_bytes()
        change(site.spool, "UPDATE batches SET task = ?", lower)
        checks.must("no shuffler starts on a task that was altered", await _is_damaged(site))
        change(site.spool, "UPDATE batches SET task = ?", whole)
        inbox.away = False
        async with site.shuffler() as shuffler:
            saved = {path: path.read_bytes() for path in site.folder.glob("batches/*/permuted")}
            for path, order in saved.items():
                path.write_bytes(order[: _last_record(order)])
            await shuffler.deliveries.advance()
            checks.must("an order that was cut is not delivered", not inbox.acknowledged)
            for path, order in saved.items():
                if path.exists():
                    path.write_bytes(order)
            await shuffler.deliveries.advance()
        delivered = [one.n_users for one in inbox.acknowledged]
        checks.must("once both are as they were it is", delivered == [clients])
    return _row(
        checks,
        "a task that was altered on the disk, and an order that was cut",
        "The shuffler neither goes on under a task that is not the one it was given nor delivers a "
        "part of an order.",
    )


async def _is_damaged(site: ShufflerSite) -> bool:
    """Say whether the shuffler finds its files damaged when it is started."""
    try:
        async with site.shuffler():
            return False
    except DamagedStorageError:
        return True


def _last_record(saved: bytes) -> int:
    """Give where the last record of an order begins; each has its length in front of it."""
    start = end = 0
    while end < len(saved):
        start = end
        end += _LENGTH_BYTES + int.from_bytes(saved[start : start + _LENGTH_BYTES], "big")
    return start


async def _expired(task: Task, rng: np.random.Generator) -> Finding:
    checks = Checks()
    async with ShufflerSite.begun(rng) as site:
        async with site.shuffler() as shuffler:
            sender = await site.publish(task, shuffler)
            await shuffler.collection.submit_bulk(sender.digest, sender.envelopes(task.n_min - 1))
            raced = await site.publish(task, shuffler)
            await shuffler.collection.submit(raced.digest, raced.envelope())
            read = await shuffler.spool.get(raced.digest)
            await shuffler.collection.submit(raced.digest, raced.envelope())
            dropping = shuffler.spool.drop(read, BatchState.EXPIRED)
            checks.must(
                "no batch expires to which a user came since that was decided",
                await refused(dropping, BatchStateError),
            )
            site.clock.seconds = DEADLINE
            await shuffler.deliveries.advance()
        left = rows(site.spool, "SELECT COUNT(*) FROM submission_groups")
        checks.must("nothing of a batch that expired is kept", left == [(0,)])
        keys = list(site.folder.glob("batch-*.key"))
        checks.must("the key that it was kept under is destroyed", not keys)
        # As if the clock had been wrong: the batch stays over.
        site.clock.seconds = DEADLINE - 1
        async with site.shuffler() as shuffler:
            late = shuffler.collection.submit(sender.digest, sender.envelope())
            checks.must(
                "nobody is added to it after a restart", await refused(late, BatchStateError)
            )
            await shuffler.deliveries.advance()
            site.clock.seconds = DEADLINE
            await shuffler.deliveries.advance()
        async with site.shuffler() as shuffler:
            await shuffler.deliveries.advance()
        checks.must("a batch that expired is never delivered", not site.inbox.attempts)
    return _row(
        checks,
        "started again after a batch has expired",
        "A batch of too few users is destroyed at its deadline, unless one came meanwhile, and a "
        "restart does not bring it back.",
    )


def _row(checks: Checks, title: str, sentence: str) -> Finding:
    return checks.finding(
        scenario=_SCENARIO,
        title=title,
        heading="correctness",
        coalition="nobody",
        sentence=sentence,
    )
