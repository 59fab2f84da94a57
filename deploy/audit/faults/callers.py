"""Faults of who may call what, and of what services tell: answers, metrics, logs and errors."""

import dataclasses
import json
import logging
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final

import grpc

import common.runtime.admission_interceptor
from analyzer.servicer import AnalyzerServicer
from common.crypto.tokens import OperatorToken
from common.runtime import access as callers
from common.runtime import access as calls
from common.runtime import logs
from common.runtime.access import CALLS, Call, Caller, asks_for_certificates
from common.runtime.logs import _Library
from common.runtime.process_metrics import ProcessMetrics as Vitals
from common.runtime.rpc import ErrorInterceptor
from common.runtime.settings import is_local
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.active_batches import Rounds
from shuffler.admission import ConnectionCount
from shuffler.collection import Collection
from shuffler.inclusion import Inclusions
from shuffler.metrics import BatchMetrics
from shuffler.servicer import ShufflerServicer
from shuffler.storage.spool import Spool

_ASKING: Final = "/shuffledp.v1.Shuffler/GetBatchProgress"


def shuffler_token_unasked() -> AbstractContextManager[None]:
    """Plant services that ask no token of who calls without a certificate."""
    return planting.attribute(callers, "_WITH_TOKEN", frozenset({Caller.OPERATOR}))


def callers_unchecked() -> AbstractContextManager[None]:
    """Plant services that look at nobody who calls."""
    return planting.function(callers.check_caller, lambda *_: None)


def progress_for_anyone() -> AbstractContextManager[None]:
    """Plant a shuffler that tells everybody how many users have submitted."""
    row = CALLS[_ASKING]
    table = MappingProxyType({**CALLS, _ASKING: Call(Caller.ANYONE, row.kind)})
    return planting.both(
        planting.attribute(calls, "CALLS", table),
        planting.attribute(common.runtime.admission_interceptor, "CALLS", table),
    )


def certificates_unasked() -> AbstractContextManager[None]:
    """Plant an analyzer to which everybody may connect."""
    return planting.function(asks_for_certificates, lambda _service: False)


def plaintext_anywhere() -> AbstractContextManager[None]:
    """Plant settings that take every address for one of this machine."""
    return planting.function(is_local, lambda _address: True)


def token_beginning() -> AbstractContextManager[None]:
    """Plant services that take the beginning of their operator's token for it."""

    def other(self: Any, shown: str) -> bool:
        return bool(self._token.startswith(shown.encode()))

    return planting.attribute(OperatorToken, "matches", other)


def peer_logged() -> AbstractContextManager[None]:
    """Plant a shuffler that logs who has had their share."""
    honest = ConnectionCount.take

    def other(self: ConnectionCount, peer: str, submissions: int) -> None:
        try:
            honest(self, peer, submissions)
        except Exception:
            logs.event("share taken", {"address": peer}, level="WARNING")
            raise

    return planting.attribute(ConnectionCount, "take", other)


def libraries_repeated() -> AbstractContextManager[None]:
    """Plant logs that repeat what libraries say."""

    def other(_self: object, record: logging.LogRecord) -> str:
        return json.dumps({"level": record.levelname, "event": record.getMessage()})

    return planting.attribute(_Library, "format", other)


def errors_repeated() -> AbstractContextManager[None]:
    """Plant services that say in the log and to the caller what an internal error says."""
    honest: Any = ErrorInterceptor._refusal

    def other(self: Any, error: Exception) -> Any:
        status, told, beside = honest(self, error)
        if status is grpc.StatusCode.INTERNAL:
            logs.event("internal error", {"error": repr(error)}, level="ERROR")
            told = repr(error)
        return status, told, beside

    return planting.attribute(ErrorInterceptor, "_refusal", other)


def arrivals_measured() -> AbstractContextManager[None]:
    """Plant a shuffler whose metrics count users as they come."""
    made: list[BatchMetrics] = []
    begun, honest = BatchMetrics.__init__, Spool.append

    def begin(self: BatchMetrics, vitals: Vitals) -> None:
        begun(self, vitals)
        made.append(self)

    async def other(self: Spool, arrival: Any) -> Any:
        made[-1]._metrics.add("shuffledp_users_collected_total", 1)
        return await honest(self, arrival)

    return planting.both(
        planting.attribute(BatchMetrics, "__init__", begin),
        planting.attribute(Spool, "append", other),
    )


def users_told() -> AbstractContextManager[None]:
    """Plant a shuffler that tells everybody how many users a batch has that collects."""
    honest = Collection.status

    async def other(self: Any, digest: Any) -> Any:
        status = await honest(self, digest)
        stored = await self._spool.get(digest)
        return dataclasses.replace(status, n_users=stored.n_users)

    return planting.attribute(Collection, "status", other)


def arrivals_asked() -> AbstractContextManager[None]:
    """Plant a shuffler that asks the analyzer for the task whenever a device submits."""
    honest: Any = Rounds.find_or_begin

    async def other(self: Any, digest: Any) -> Any:
        await self._analyzer.get_task(digest)
        return await honest(self, digest)

    return planting.attribute(Rounds, "find_or_begin", other)


def place_told() -> AbstractContextManager[None]:
    """Plant a shuffler that tells each device how many came before it."""
    honest = ShufflerServicer.Submit
    came: list[None] = []

    async def other(self: Any, request: Any, context: Any) -> Any:
        answer = await honest(self, request, context)
        came.append(None)
        context.set_trailing_metadata((("place", str(len(came))),))
        return answer

    return planting.attribute(ShufflerServicer, "Submit", other)


def bad_report_named() -> AbstractContextManager[None]:
    """Plant an analyzer that tells the shuffler, beside its answer, about reports."""
    honest = AnalyzerServicer.DeliverBatch

    async def other(self: Any, requests: Any, context: Any) -> Any:
        answer = await honest(self, requests, context)
        context.set_trailing_metadata((("refused", "17"),))
        return answer

    return planting.attribute(AnalyzerServicer, "DeliverBatch", other)


def proofs_logged() -> AbstractContextManager[None]:
    """Plant a shuffler that logs for which reports a proof is asked."""
    honest = Inclusions.relay

    async def other(self: Any, digest: Any, prefix: int | None) -> Any:
        logs.event("proof relayed", {"n_users": prefix or 0}, level="DEBUG")
        return await honest(self, digest, prefix)

    return planting.attribute(Inclusions, "relay", other)


CALLERS: Final = (
    Fault(
        name="token-unasked",
        says="the shuffler asks nobody for a token",
        scenario="services",
        check="is served to who holds the operator's token alone",
        plant=shuffler_token_unasked,
    ),
    Fault(
        name="callers-unchecked",
        says="services look at nobody who calls",
        scenario="services",
        check="DeliverBatch of the analyzer is served to the shuffler alone",
        plant=callers_unchecked,
    ),
    Fault(
        name="progress-for-anyone",
        says="the shuffler tells everybody how many have submitted",
        scenario="services",
        check="GetBatchProgress of the shuffler is served to who holds",
        plant=progress_for_anyone,
    ),
    Fault(
        name="certificates-unasked",
        says="the analyzer lets everybody connect",
        scenario="services",
        check="nobody connects to the analyzer without a certificate",
        plant=certificates_unasked,
    ),
    Fault(
        name="plaintext-anywhere",
        says="services listen in plaintext for the whole network",
        scenario="services",
        check="in plaintext beyond its own machine",
        plant=plaintext_anywhere,
    ),
    Fault(
        name="token-beginning",
        says="the beginning of an operator's token is enough",
        scenario="services",
        check="is served to the operator alone",
        plant=token_beginning,
    ),
    Fault(
        name="peer-logged",
        says="the shuffler logs the address of who has had their share",
        scenario="services",
        check="no log names who made a call that failed",
        plant=peer_logged,
    ),
    Fault(
        name="libraries-repeated",
        says="logs repeat what libraries say",
        scenario="services",
        check="no log repeats what an error or a library says",
        plant=libraries_repeated,
    ),
    Fault(
        name="errors-repeated",
        says="what an internal error says is logged, and told to the caller",
        scenario="services",
        check="a caller is told nothing of an internal error",
        plant=errors_repeated,
    ),
    Fault(
        name="arrivals-measured",
        says="a metric of the shuffler counts users as they come",
        scenario="services",
        check="metrics do not move with submissions",
        plant=arrivals_measured,
    ),
    Fault(
        name="users-told",
        says="the shuffler tells everybody how many users a batch has that collects",
        scenario="services",
        check="what the shuffler answers of a batch does not move",
        plant=users_told,
    ),
    Fault(
        name="arrivals-asked",
        says="the shuffler asks the analyzer for the task whenever a device submits",
        scenario="services",
        check="the shuffler asks the analyzer once for each task",
        plant=arrivals_asked,
    ),
    Fault(
        name="place-told",
        says="the shuffler tells each device how many came before it",
        scenario="services",
        check="answers carry nothing beside them but fixed words",
        plant=place_told,
    ),
    Fault(
        name="bad-report-named",
        says="the analyzer names a refused report beside its answer",
        scenario="services",
        check="answers carry nothing beside them but fixed words",
        plant=bad_report_named,
    ),
    Fault(
        name="proofs-logged",
        says="the shuffler logs for which reports a proof is asked",
        scenario="services",
        check="who asks for a proof leaves no line",
        plant=proofs_logged,
    ),
)
