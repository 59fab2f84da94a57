"""
Where a batch begins and ends, and what is too much.

So many dummies, so many users, until then, so many submissions of a connection.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from common.errors import BatchStateError, ShareError
from common.messages.batch import BatchState
from common.messages.submission import Outcome as Became
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.integrity.begun import begun
from deploy.audit.integrity.connection import Connection
from deploy.audit.integrity.playthrough import Rows, played, refused, taken
from deploy.audit.integrity.shuffler_core import ShufflerCore
from deploy.audit.integrity.shuffler_site import DEADLINE, Sender, ShufflerSite, users
from protos.shuffledp.v1 import shuffler_pb2

_SCENARIO: Final = "thresholds"
_SHARE: Final = 2
"""Submissions of a connection, where they are bounded."""


def thresholds(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Which tasks are begun; too few users, and enough; just before the deadline, and at it."""
    return Outcome(findings=played(_sent, audited, rng))


async def _sent(task: Task, rng: np.random.Generator) -> Rows:
    return (
        await begun(task, rng),
        await _least_users(task, rng),
        await _raised(task, rng),
        await _deadline(task, rng),
        await _connections(task, rng),
    )


async def _least_users(task: Task, rng: np.random.Generator) -> Finding:
    checks, least = Checks(), task.n_min
    async with ShufflerSite.begun(rng) as site, site.shuffler() as shuffler:
        early, short, enough = [await site.publish(task, shuffler) for _ in range(3)]
        for sender, number in ((early, least - 1), (short, least - 1), (enough, least)):
            await shuffler.collection.submit_bulk(sender.digest, sender.envelopes(number))
        checks.must(
            "a batch of one user fewer than n_min is not closed by its operator",
            await refused(shuffler.collection.close(early.digest), BatchStateError),
        )
        another = shuffler.collection.submit(early.digest, early.envelope())
        checks.must("it goes on collecting", await taken(another))
        closing = shuffler.collection.close(early.digest)
        checks.must("one of n_min is", await taken(closing))
        site.clock.seconds = DEADLINE - 1
        await shuffler.deliveries.advance()
        checks.must(
            "without the operator none is closed before its deadline",
            await _state(shuffler, enough) is BatchState.COLLECTING,
        )
        site.clock.seconds = DEADLINE
        await shuffler.deliveries.advance()
        checks.must(
            "one of one user fewer expires at its deadline",
            await _state(shuffler, short) is BatchState.EXPIRED,
        )
        delivered = [(one.task_digest, one.n_users) for one in site.inbox.acknowledged]
    checks.must(
        "those of n_min users are delivered, and no other",
        delivered == [(early.digest, least), (enough.digest, least)],
    )
    return _row(
        checks,
        f"{least - 1} users and {least}, where n_min is {least}",
        "The shuffler closes and delivers no batch of one user fewer than the task's n_min, "
        "neither for its operator nor at its deadline; such a batch is destroyed.",
    )


async def _raised(task: Task, rng: np.random.Generator) -> Finding:
    checks, least = Checks(), task.n_min + 1
    async with ShufflerSite.begun(rng) as site, site.shuffler(minimum_batch=least) as shuffler:
        sender = await site.publish(task, shuffler)
        await shuffler.collection.submit_bulk(sender.digest, sender.envelopes(task.n_min))
        checks.must(
            "a batch of fewer users than the shuffler's own minimum is not closed by its operator",
            await refused(shuffler.collection.close(sender.digest), BatchStateError),
        )
        told = await shuffler.collection.progress(sender.digest)
        checks.must("the higher minimum is what is told", told.n_min == least)
        full = await site.publish(replace(task, target_size=task.n_min), shuffler)
        await shuffler.collection.submit_bulk(full.digest, full.envelopes(task.n_min))
        await shuffler.deliveries.advance()
        checks.must(
            "nor is one that has as many as its task aims at, and fewer than that minimum",
            await _state(shuffler, full) is BatchState.COLLECTING,
        )
        another = shuffler.collection.submit(full.digest, full.envelope())
        checks.must("it goes on collecting", await taken(another))
        await shuffler.deliveries.advance()
        checks.must(
            "one that has both closes by itself",
            await _state(shuffler, full) is BatchState.ERASED,
        )
        site.clock.seconds = DEADLINE
        await shuffler.deliveries.advance()
        expired = await _state(shuffler, sender) is BatchState.EXPIRED
        attempts = [manifest.task_digest for manifest, _ in site.inbox.attempts]
        checks.must("at its deadline it expires", expired and sender.digest not in attempts)
    return _row(
        checks,
        f"{task.n_min} users, where the shuffler itself asks for {least}",
        "A minimum that the shuffler's operator sets holds where a task asks for fewer users, or "
        "aims at fewer.",
    )


async def _deadline(task: Task, rng: np.random.Generator) -> Finding:
    checks = Checks()
    async with ShufflerSite.begun(rng) as site, site.shuffler() as shuffler:
        sender, collection = await site.publish(task, shuffler), shuffler.collection
        site.clock.seconds = DEADLINE - 1
        own = sender.envelope()
        became = await collection.submit_bulk(sender.digest, [own])
        checks.must("a second before the deadline one is taken", became == [Became.STORED])
        for name, late in (("at the deadline", 0), ("a second after it", 1)):
            site.clock.seconds = DEADLINE + late
            alone = collection.submit(sender.digest, sender.envelope())
            checks.must(f"{name} none is taken", await refused(alone, BatchStateError))
            became = await collection.submit_bulk(sender.digest, [sender.envelope(), own])
            checks.must(
                f"{name} none is taken in bulk, and one that was taken is still known",
                became == [Became.CLOSED, Became.REPEATED],
            )
        checks.must("one is kept", await users(shuffler, sender) == 1)
    return _row(
        checks,
        "submissions just before the deadline, at it, and after it",
        "Nothing that comes at the deadline or a second later counts, though the batch has not "
        "been closed yet.",
    )


async def _connections(task: Task, rng: np.random.Generator) -> Finding:
    checks, one, other, third = Checks(), *(_connection(number) for number in range(3))
    async with (
        ShufflerSite.begun(rng) as site,
        site.shuffler(most_of_a_connection=_SHARE) as shuffler,
    ):
        sender, servicer = await site.publish(task, shuffler), shuffler.servicer

        def single() -> shuffler_pb2.SubmitRequest:
            return shuffler_pb2.SubmitRequest(task_digest=sender.digest, envelope=sender.envelope())

        def bulk(number: int) -> shuffler_pb2.SubmitBulkRequest:
            return shuffler_pb2.SubmitBulkRequest(
                task_digest=sender.digest, envelopes=sender.envelopes(number)
            )

        for _ in range(_SHARE):
            await servicer.Submit(single(), one)
        more = servicer.Submit(single(), one)
        checks.must("one more than its share is refused", await refused(more, ShareError))
        await servicer.SubmitBulk(bulk(_SHARE), other)
        checks.must("another connection has its own share", await users(shuffler, sender) == 4)  # noqa: PLR2004  # two of each
        more = servicer.Submit(single(), other)
        checks.must("bulk calls count as many", await refused(more, ShareError))
        whole = servicer.SubmitBulk(bulk(_SHARE + 1), third)
        checks.must("a call of more than that is refused", await refused(whole, ShareError))
        checks.must("nothing of it is kept", await users(shuffler, sender) == 2 * _SHARE)
    return _row(
        checks,
        f"{_SHARE} submissions of a connection and one more, where {_SHARE} are allowed",
        "Where submissions of a connection are bounded one more is refused, alone or in bulk. That "
        "bounds a careless client, not somebody who opens many connections.",
    )


def _connection(number: int) -> Connection:
    """Give one over IPv4 or over IPv6: each has its share."""
    return Connection(name=("ipv4:192.0.2.1:1", "ipv6:[2001:db8::1]:1", "ipv6:[::1]:1")[number])


async def _state(shuffler: ShufflerCore, sender: Sender) -> BatchState:
    return (await shuffler.collection.progress(sender.digest)).state


def _row(checks: Checks, title: str, sentence: str) -> Finding:
    return checks.finding(
        scenario=_SCENARIO,
        title=title,
        heading="correctness",
        coalition="nobody",
        sentence=sentence,
    )
