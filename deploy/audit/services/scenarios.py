"""The audit of the running services: one play of the three, and what it shows."""

from typing import Final

import numpy as np

from common.crypto.merkle import SALT_BYTES
from common.messages.batch import BATCH_ID_BYTES
from common.task.task import NONCE_BYTES
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding, Outcome
from deploy.audit.scenario import Scenario
from deploy.audit.services import (
    analyzer_disk,
    arrived,
    callers,
    contents,
    custody,
    lengths,
    message_count,
    order,
    refused,
    sources,
    storage,
    telling,
    traces,
)
from deploy.audit.services.collect import collect
from deploy.audit.services.plan import plan_for
from deploy.audit.services.record import Record
from deploy.audit.services.sources import Asked
from deploy.audit.services.views import Views


def play(audited: Audited, rng: np.random.Generator) -> Outcome:
    """
    Play five collections over the three real services, in a process of its own, and look.

    Cost: some twenty seconds of one core; see `play.play`.
    """
    return Outcome(findings=findings(collect(plan_for(audited, rng)), rng))


def findings(record: Record, rng: np.random.Generator) -> tuple[Finding, ...]:
    """Say what a play shows, a row for each thing that a reader wants to know."""
    views = {one.name: view for one in record.collections if (view := Views.of(one)) is not None}
    return (
        lengths.finding(record, rng),
        message_count.finding(record, views),
        contents.finding(record, views),
        order.finding(record, views),
        traces.finding(record),
        telling.finding(record),
        storage.finding(record),
        analyzer_disk.finding(record, views),
        custody.finding(record),
        arrived.finding(record, views),
        refused.finding(record),
        callers.finding(record),
        sources.finding(record.sources, record.asked, drawn(record, views)),
    )


def drawn(record: Record, views: dict[str, Views]) -> list[Asked]:
    """Give what services must have drawn of their own, to have published and sent what they did."""
    by_agent = [
        len(answer.reports)
        for one in (record.first, record.again, record.marked)
        for answer in one.answers[: len(record.persons)]
    ]
    orders = [len(view.analyzer.reports) for view in views.values()]
    return [
        *(Asked(party="analyzer", what="bytes", size=NONCE_BYTES) for _ in record.collections),
        *(Asked(party="analyzer", what="bytes", size=SALT_BYTES) for _ in views),
        *(Asked(party="shuffler", what="bytes", size=BATCH_ID_BYTES) for _ in record.collections),
        *(Asked(party="shuffler", what="permutation", size=size) for size in orders),
        *(Asked(party="user_agent", what="permutation", size=size) for size in by_agent),
    ]


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="services",
        title="The three services as they run: what each received, kept, wrote and drew",
        seconds=20,
        play=play,
    ),
)
