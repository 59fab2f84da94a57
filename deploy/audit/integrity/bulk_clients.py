"""Clients that send many submissions in one call: what of it the shuffler takes, and signs for."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from common.crypto.hpke import envelope_context
from common.crypto.receipt import bulk_receipt_holds, receipt_holds
from common.crypto.tokens import TOKEN_BYTES, TokenIssuer, serial_of
from common.errors import TokenUsedError
from common.messages.submission import Outcome as Became
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.wire.submissions import outcomes_from_wire
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.integrity.connection import Connection
from deploy.audit.integrity.playthrough import Rows, played, refused
from deploy.audit.integrity.shuffler_site import ShufflerSite, users
from deploy.audit.integrity.spool_file import rows, written_anywhere
from deploy.audit.raw_bytes import changed, found, hashed, written
from protos.shuffledp.v1 import shuffler_pb2
from shuffler.storage.batch_key import BatchKey
from shuffler.storage.group import TAGS, open_group, open_tags

_SCENARIO: Final = "bulk-clients"


def bulk_clients(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Submissions that come many in a call: twice, under tokens, and what is signed for them."""
    return Outcome(findings=played(_sent, audited, rng))


async def _sent(task: Task, rng: np.random.Generator) -> Rows:
    return (
        await _repeats(task, rng),
        await _kept(task, rng),
        await _tokens(task, rng),
        await _receipts(task, rng),
    )


async def _repeats(task: Task, rng: np.random.Generator) -> Finding:
    checks, counted = Checks(), 0
    async with ShufflerSite.begun(rng) as site, site.shuffler() as shuffler:
        sender = await site.publish(task, shuffler)
        submit = partial(shuffler.collection.submit_bulk, sender.digest)
        own_id = rng.bytes(SUBMISSION_ID_BYTES)
        own, changed = sender.envelope(own_id), sender.envelope(own_id)
        # Three of each: two go to one of the shuffler's workers, and one to another.
        became = await submit([own] * 3)
        counted += 1
        checks.must(
            "what stands several times in one call counts once", _one_stored(became, "repeated")
        )
        shared = rng.bytes(SUBMISSION_ID_BYTES)
        became = await submit([sender.envelope(shared) for _ in range(3)])
        counted += 1
        checks.must(
            "of several under one id in one call one counts", _one_stored(became, "conflict")
        )
        became = await submit([own, changed, sender.envelope()])
        counted += 1
        checks.must(
            "what came in an earlier call counts no more",
            became == [Became.REPEATED, Became.CONFLICT, Became.STORED],
        )
        twin = sender.envelope()
        [one], [other] = await asyncio.gather(submit([twin]), submit([twin]))
        counted += 1
        checks.must(
            "nor does what comes in two calls at once", _one_stored([one, other], "repeated")
        )
        near = [sender.envelope(near_id) for near_id in _near(own_id)]
        became = await submit(near)
        counted += len(near)
        checks.must(
            "ids that differ in one byte are different ids", became == [Became.STORED] * len(near)
        )
        kept = await users(shuffler, sender)
        checks.must("as many users are counted as were stored", kept == counted)
    return _row(
        checks,
        "submissions twice in a call, in two calls, and in two at once",
        "A submission counts once, whether it comes again in the same call, in a later one, or in "
        "another at the same moment; and ids that are almost the same are different submissions.",
    )


async def _kept(task: Task, rng: np.random.Generator) -> Finding:
    """Open what is stored of calls of which a part came before, or does not open."""
    checks = Checks()
    async with ShufflerSite.begun(rng) as site, site.shuffler() as shuffler:
        sender = await site.publish(task, shuffler)
        sent = sender.envelopes(9)
        broken = changed(sent[0], 0)
        for call in (
            sent[:3],
            [sent[3], sent[0], sent[4]],
            [sent[1], sent[5], broken, sent[6]],
            [broken, sent[7], sent[2], sent[8]],
        ):
            await shuffler.collection.submit_bulk(sender.digest, call)
        [found] = shuffler.rounds.unfinished()
        private = shuffler.keys.private_key(
            found.task.suite, found.task.shuffler_key, whose="shuffler_key"
        )
        texts = [private.open(one, envelope_context(found.digest)) for one in sent]
        query = "SELECT number, sealed_tags, sealed FROM submission_groups"
        stored = [row for group in rows(site.spool, query) for row in _opened(group, found.key)]
    checks.must(
        "what is stored of a call is what was taken of it, each beside its own hashes",
        sorted(stored) == sorted(_tagged(text, found.key) for text in texts),
    )
    return _row(
        checks,
        "what is stored of calls of which a part is new",
        "Of a call in which some came before, or do not open, the sealed reports of the others are "
        "stored, each beside the hashes that it is known by.",
    )


def _opened(group: tuple[int, bytes, bytes], key: BatchKey) -> Iterator[tuple[bytes, bytes]]:
    """Give the tags and the reports of each submission of a stored group."""
    number, sealed_tags, sealed = group
    tags, reports = open_tags(number, sealed_tags, key), open_group(number, sealed, key)
    count = len(tags) // TAGS.itemsize
    for at in range(count):
        own = slice(at * len(reports) // count, (at + 1) * len(reports) // count)
        yield tags[at * TAGS.itemsize : (at + 1) * TAGS.itemsize], reports[own]


def _tagged(text: bytes, key: BatchKey) -> tuple[bytes, bytes]:
    """Give the tags and the reports of a submission by its own bytes."""
    own_id, reports = text[:SUBMISSION_ID_BYTES], text[SUBMISSION_ID_BYTES:]
    return key.tag(own_id) + key.tag(reports), reports


def _near(own_id: bytes) -> list[bytes]:
    """Give ids that differ from another in their first, middle or last byte alone."""
    places = (0, len(own_id) // 2, len(own_id) - 1)
    return [changed(own_id, at) for at in places]


def _one_stored(became: list[Became], others: str) -> bool:
    """Say whether one was stored, whichever, and what became of the others."""
    return sorted(became) == sorted([Became.STORED] + [Became(others)] * (len(became) - 1))


async def _tokens(task: Task, rng: np.random.Generator) -> Finding:
    checks = Checks()
    issuer, stranger = TokenIssuer(rng.bytes(32)), TokenIssuer(rng.bytes(32))
    first, second, third = (issuer.issue() for _ in range(3))
    stored, used, no_token = Became.STORED, Became.TOKEN_USED, Became.UNAUTHENTICATED
    async with ShufflerSite.begun(rng) as site:
        async with site.shuffler(tokens=issuer.identity()) as shuffler:
            sender, other, third_task = [await site.publish(task, shuffler) for _ in range(3)]
            submit = partial(shuffler.collection.submit_bulk, sender.digest)
            own = sender.envelope()
            shown = [b"", rng.bytes(TOKEN_BYTES), stranger.issue(), first]
            became = await submit([*sender.envelopes(3), own], shown)
            checks.must(
                "of no token, a made-up one, a stranger's and a right one the last is taken",
                became == [no_token] * 3 + [stored],
            )
            again = await submit(sender.envelopes(3), shown[:3])
            checks.must("wrong tokens are refused when they come again", again == [no_token] * 3)
            checks.must(
                "a call without tokens is refused", await submit([sender.envelope()]) == [no_token]
            )
            became = await submit([own, sender.envelope()], [first, first])
            checks.must(
                "a token that came in an earlier call is refused, unless what it came with comes "
                "again",
                became == [Became.REPEATED, used],
            )
            became = await submit(sender.envelopes(3), [second] * 3)
            checks.must(
                "a token that stands several times in one call counts once",
                _one_stored(became, "token used"),
            )
            alone = shuffler.collection.submit(sender.digest, sender.envelope(), second)
            checks.must(
                "one that came in bulk is refused alone", await refused(alone, TokenUsedError)
            )
            await shuffler.collection.submit(sender.digest, sender.envelope(), third)
            checks.must(
                "and one that came alone is refused in bulk",
                await submit([sender.envelope()], [third]) == [used],
            )
            checks.must("three submissions are kept", await users(shuffler, sender) == 3)  # noqa: PLR2004  # one of each token
            became = await shuffler.collection.submit_bulk(
                other.digest, [other.envelope()], [first]
            )
            checks.must("a token counts once for every task", became == [stored])
            forged = serial_of(first) + stranger.issue()[len(serial_of(first)) :]
            became = await shuffler.collection.submit_bulk(
                third_task.digest, third_task.envelopes(2), [forged, first]
            )
            checks.must(
                "a serial number that came before needs its signature again",
                became == [no_token, stored],
            )
        async with site.shuffler(tokens=issuer.identity()) as shuffler:
            submit = partial(shuffler.collection.submit_bulk, sender.digest)
            became = await submit(sender.envelopes(3), [first, second, third])
            checks.must("used tokens are known after a restart", became == [used] * 3)
        kept = [tag for (tag,) in rows(site.spool, "SELECT token_tag FROM used_tokens")]
        traces = [way for one in (first, second, third) for way in _ways(serial_of(one))]
        on_disk = written_anywhere(site.folder)
    checks.must("no serial number of a token is on the disk", not found(traces, on_disk))
    checks.must(
        "what is kept of one token for two tasks does not tell that it is one",
        len(set(kept)) == len(kept) == 5,  # noqa: PLR2004  # three of one task and one each of two
    )
    return _row(
        checks,
        "tokens missing, made up and used again, many in a call",
        "Where tokens are asked for each counts for one submission to a task, in bulk, alone, and "
        "after a restart; the shuffler's files hold no serial number of one.",
    )


def _ways(serial: bytes) -> list[bytes]:
    return [*written(serial), *hashed(serial)]


async def _receipts(task: Task, rng: np.random.Generator) -> Finding:
    checks, client = Checks(), Connection(name="ipv4:192.0.2.1:1")
    async with ShufflerSite.begun(rng) as site, site.shuffler() as shuffler:
        sender, signer = await site.publish(task, shuffler), shuffler.identity.public_identity()
        digest, (one, two, three) = sender.digest, sender.envelopes(3)
        broken, cut = changed(three, 0), three[:-1]
        sent = [broken, one, two, cut, one]
        request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=sent)
        answer = await shuffler.servicer.SubmitBulk(request, client)
        bad = Became.MALFORMED
        checks.must(
            "each is told what became of it, in order",
            outcomes_from_wire(answer) == [bad, Became.STORED, Became.STORED, bad, Became.REPEATED],
        )
        checks.must(
            "one receipt is for all that are stored, in order, and for no other",
            bulk_receipt_holds(signer, digest, [one, two, one], answer.receipt),
        )
        request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=[broken, cut])
        answer = await shuffler.servicer.SubmitBulk(request, client)
        checks.must("where nothing is stored nothing is signed", answer.receipt == b"")
        for name, envelope in (("that comes alone", three), ("that came before", one)):
            single = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)
            receipt = (await shuffler.servicer.Submit(single, client)).receipt
            checks.must(
                f"there is a receipt for one {name}",
                receipt_holds(signer, digest, envelope, receipt),
            )
    return _row(
        checks,
        "receipts for calls of which a part is refused",
        "The shuffler signs for what it has stored and for nothing that it has refused, so that a "
        "receipt is evidence.",
    )


def _row(checks: Checks, title: str, sentence: str) -> Finding:
    return checks.finding(
        scenario=_SCENARIO,
        title=title,
        heading="sender disruption",
        coalition="users",
        sentence=sentence,
    )
