"""Faults of what operators are shown, and of what devices look at before they answer."""

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

import numpy as np

from common.accounting.guarantees import Terms, analyzer_guarantee, claimed_guarantee
from common.crypto.signing import PublicIdentity, SignedTask
from common.mechanisms.weights import ResponseWeights
from common.messages.estimate import Estimate, Histogram
from common.messages.guarantee import Guarantee
from common.messages.ledger_entry import ChainHead, LedgerEntry, verify
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.results import ledger_from_wire
from deploy.audit.faults import planting
from deploy.clients import analyzer as operator_client
from deploy.clients.analyzer import OperatorClient
from deploy.pages import live_server
from deploy.planning import planner as planning
from deploy.results import verification as result_check
from deploy.results.estimate_columns import Columns, columns_of
from protos.shuffledp.v1 import analyzer_pb2
from user_agent import policy

_LOOSE: Final = 1.02
"""By which weights may promise too much."""


def half_a_guarantee_taken() -> AbstractContextManager[None]:
    """Plant an operator's program that takes half of a guarantee for all of it."""
    return planting.attribute(result_check, "_CLOSE", 0.5)


def ledger_read_unverified() -> AbstractContextManager[None]:
    """Plant one that reads a ledger as it is given."""

    async def other(self: OperatorClient) -> tuple[list[LedgerEntry], ChainHead]:
        entries, head = list[LedgerEntry](), ChainHead()
        while True:
            call = self._stub.GetLedger(analyzer_pb2.GetLedgerRequest(after=head.entry))
            page = ledger_from_wire(await self._reply(call))
            if not page:
                return entries, head
            head = ChainHead(entry=page[-1].entry, entry_hash=page[-1].entry_hash)
            entries += page

    return planting.attribute(OperatorClient, "ledger", other)


def ledger_pages_apart() -> AbstractContextManager[None]:
    """Plant one that verifies a ledger, but each page by itself."""
    honest = verify

    def other(page: Sequence[LedgerEntry], _: ChainHead) -> ChainHead:
        first = page[0]
        return honest(page, ChainHead(entry=first.entry - 1, entry_hash=first.previous_hash))

    return planting.attribute(operator_client, "verify", other)


def plans_for_the_honest() -> AbstractContextManager[None]:
    """Plant plans that promise what would hold if everybody were honest."""

    def other(terms: Terms, n_users: int) -> Guarantee:
        return analyzer_guarantee(terms, n_users, n_users)

    return planting.attribute(planning, "claimed_guarantee", other)


def plans_for_one_round() -> AbstractContextManager[None]:
    """Plant plans that promise for all rounds what holds for one."""
    honest = claimed_guarantee

    def other(terms: Terms, n_users: int) -> Guarantee:
        return honest(dataclasses.replace(terms, rounds=1), n_users)

    return planting.attribute(planning, "claimed_guarantee", other)


def narrow_intervals() -> AbstractContextManager[None]:
    """Plant intervals of 68.27 % under a heading of 95 %."""
    honest = columns_of

    def other(estimate: Estimate, labels: Sequence[str]) -> Columns:
        columns = honest(estimate, labels)
        if isinstance(estimate, Histogram):
            low, high = (ends.tolist() for ends in estimate.interval(0.6827))
            columns |= {"interval_low": low, "interval_high": high}
        return columns

    return planting.function(honest, other)


def noise_told_apart() -> AbstractContextManager[None]:
    """Plant results that take the largest of many noises for a value that somebody holds."""

    def other(self: Histogram, confidence: float) -> bool:
        low, _ = self.interval(confidence)
        return bool(np.any(low > 0))

    return planting.attribute(Histogram, "tells_values_apart", other)


def page_for_everybody() -> AbstractContextManager[None]:
    """Plant live pages that the whole network may open."""
    return planting.attribute(live_server, "_LOOPBACK", "0.0.0.0")  # noqa: S104  # the fault


def any_task_answered() -> AbstractContextManager[None]:
    """Plant devices that do not look which task they were handed."""
    honest = policy.authentic

    def other(signed: SignedTask, _: TaskDigest, identity: PublicIdentity | None) -> Task:
        return honest(signed, signed.digest(), identity)

    return planting.function(honest, other)


def any_signer_believed() -> AbstractContextManager[None]:
    """Plant devices that do not look who signed a task."""
    honest = policy.authentic
    return planting.function(honest, lambda signed, digest, _: honest(signed, digest, None))


def weights_unchecked() -> AbstractContextManager[None]:
    """Plant devices that answer with weights that promise a little less than is claimed."""
    honest = ResponseWeights.keeps_promise
    return planting.attribute(
        ResponseWeights,
        "keeps_promise",
        lambda self, epsilon: honest(self, _LOOSE * epsilon),
    )
