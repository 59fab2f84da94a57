"""
What operators are told: whether they notice a wrong guarantee, ledger, interval, plan or page.

Each is told something false here, and something true. What is true of guarantees and plans is the
accountant's word, which the scenario `accountant` judges.
"""

import asyncio
import dataclasses
import errno
import math
import socket
from collections.abc import Sequence
from typing import Any, Final, cast

import grpc
import numpy as np
from numpy.typing import NDArray

from common.accounting.guarantees import central_epsilon, guarantees
from common.crypto.signing import SignedTask
from common.errors import LedgerError, WireError
from common.messages.batch import BATCH_ID_BYTES, BatchId
from common.messages.estimate import Histogram
from common.messages.guarantee import Guarantee
from common.messages.ledger_entry import FIRST_PREVIOUS_HASH, LedgerEntry
from common.messages.result import Result
from common.task_digest import DIGEST_BYTES, TaskDigest
from common.wire.results import ledger_to_wire
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.sample_task import FEW_USERS, amplified_task
from deploy.audit.stand_ins.still_clock import StillClock
from deploy.clients.analyzer import OperatorClient
from deploy.pages.live_feed import LiveFeed
from deploy.pages.live_server import LivePage, LiveServer
from deploy.planning.planner import plan
from deploy.planning.requirements import Requirements
from deploy.results.estimate_columns import columns_of
from deploy.results.verification import check_guarantees

_LESS: Final = 0.98
"""Of a figure: further below the truth than two versions of this program are apart."""
_ITEMS: Final = 1000
_REACH: Final = 1.959963984540054
"""Standard errors to each side of an interval of 95 %."""
_REACH_OF_ALL: Final = 4.055626981
"""Of an interval among a thousand that hold together with 95 %: of 99.995 % each."""
_ERROR: Final = 0.01
_ENTRIES: Final = 6
_ON_A_PAGE: Final = 2
_PATIENCE: Final = 5.0
"""Seconds."""
_LOOPBACK: Final = "127.0.0.1"
_ELSEWHERE: Final = "127.0.0.2"
"""Of this machine too, but no address that the page is to be served at."""
_REFUSED: Final = (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH)
_PLANS: Final[tuple[dict[str, Any], ...]] = (
    {"central_epsilon": 1.0},
    {"central_epsilon": 1.0001, "rounds": 2},
)


def play_operators(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Tell an operator's programs what is true and what is not; whatever task is audited."""
    del audited
    checks = Checks()
    _check_guarantees(checks)
    asyncio.run(_check_ledger(checks, rng))
    _check_plans(checks)
    _check_intervals(checks, rng)
    _check_values_apart(checks)
    _check_page(checks)
    finding = checks.finding(
        scenario="operators",
        title="What operators are told",
        heading="correctness",
        coalition="analyzer",
        sentence="A result that promises 2 % more than its task allows was refused, and a ledger "
        "of which one entry was altered, or one before the last left out. A plan promised what "
        "holds if so many users are honest as was wished, over all rounds; intervals reached as "
        "far as their confidence says, and noise alone told no values apart. The page of a "
        "collection is served to this machine alone.",
        advice="Do not rely on what this version shows.",
    )
    return Outcome(findings=(finding,))


def _result(promised: Sequence[Guarantee]) -> Result:
    task = amplified_task()
    nothing = np.zeros(task.domain_size)
    return Result(
        task_digest=SignedTask(task_bytes=task.to_bytes(), signature=b"").digest(),
        protocol=task.protocol,
        mechanism=task.mechanism.name,
        buckets=task.item_mechanism.buckets,
        local_epsilon=task.local_epsilon,
        n_users=FEW_USERS,
        n_reports=FEW_USERS,
        n_dummies=0,
        refused={"repeated": 0, "unreadable": 0, "malformed": 0},
        estimate=_histogram(nothing),
        guarantees=tuple(promised),
        published_claim="",
        open_seconds=0.0,
        estimate_seconds=0.0,
    )


def _histogram(frequencies: NDArray[np.float64]) -> Histogram:
    errors = np.full(len(frequencies), _ERROR)
    return Histogram(
        frequencies=frequencies, standard_errors=errors, refined=frequencies, mse_theory=_ERROR**2
    )


def _check_guarantees(checks: Checks) -> None:
    """Promise what holds, then a little more against one coalition after the other."""
    known = guarantees(amplified_task(), FEW_USERS, 0)
    checks.must("a result that promises what holds is taken", _is_taken(known))
    for place, one in enumerate(known):
        for name in ("epsilon", "delta"):
            figure = getattr(one, name)
            if figure:
                less = dataclasses.replace(one, **{name: _LESS * figure})
                checks.must(
                    "a result that promises 2 % more than holds is refused",
                    not _is_taken([*known[:place], less, *known[place + 1 :]]),
                )
    checks.must("a result that leaves a promise out is refused", not _is_taken(known[1:]))


def _is_taken(promised: Sequence[Guarantee]) -> bool:
    try:
        check_guarantees(_result(promised), amplified_task())
    except WireError:
        return False
    return True


class _Ledger:
    """A channel to an analyzer that gives a ledger, a few entries at a time."""

    def __init__(self, entries: Sequence[LedgerEntry]) -> None:
        self._entries = list(entries)

    def unary_unary(self, path: str, *_: object, **__: object) -> Any:  # noqa: ANN401  # as gRPC's
        """Give the call of a path."""
        del path
        return self._page

    stream_unary = unary_stream = stream_stream = unary_unary

    async def _page(self, request: Any, **_: object) -> Any:  # noqa: ANN401  # messages
        places = [place for place, one in enumerate(self._entries) if one.entry == request.after]
        start = places[0] + 1 if places else 0 if request.after == 0 else len(self._entries)
        return ledger_to_wire(self._entries[start : start + _ON_A_PAGE])


def _entries(rng: np.random.Generator) -> list[LedgerEntry]:
    found, previous = list[LedgerEntry](), FIRST_PREVIOUS_HASH
    for number in range(1, _ENTRIES + 1):
        entry = LedgerEntry.chained(
            previous,
            entry=number,
            task_digest=TaskDigest(rng.bytes(DIGEST_BYTES)),
            batch_id=BatchId(rng.bytes(BATCH_ID_BYTES)),
            population="people",
            n_users=FEW_USERS,
            n_refused=0,
            coalition="analyzer",
            epsilon=0.5,
            delta=1e-6,
            theorem="theorem",
            composed_epsilon=0.5 * number,
        )
        found.append(entry)
        previous = entry.entry_hash
    return found


async def _check_ledger(checks: Checks, rng: np.random.Generator) -> None:
    entries = _entries(rng)
    checks.must("an operator reads the whole ledger", await _read(entries) == entries)
    for place, entry in enumerate(entries):
        before, after = entries[:place], entries[place + 1 :]
        altered = dataclasses.replace(entry, epsilon=entry.epsilon / 2)
        rehashed = dataclasses.replace(altered, entry_hash=altered.expected_hash())
        false = {"altered alone": [*before, altered, *after]}
        if after:  # a valid end may lack what follows it
            false["altered, with its hash"] = [*before, rehashed, *after]
            false["left out"] = [*before, *after]
        for words, told in false.items():
            checks.must(
                f"an operator notices an entry of the ledger that was {words}",
                await _read(told) is None,
            )


async def _read(entries: Sequence[LedgerEntry]) -> list[LedgerEntry] | None:
    """Read a ledger as an operator does; None where it is broken."""
    client = OperatorClient(cast("grpc.aio.Channel", _Ledger(entries)), _LOOPBACK, "token")
    try:
        async with asyncio.timeout(_PATIENCE):
            found, _ = await client.ledger()
    except LedgerError:
        return None
    return found


def _check_plans(checks: Checks) -> None:
    """Plan for users of whom half are honest, for one round and for two."""
    for fields in _PLANS:
        wishes = Requirements(
            n_users=FEW_USERS,
            n_min=FEW_USERS,
            domain_size=2,
            delta=1e-3,
            local_cap=0.5,
            honest_fraction=0.5,
            **fields,
        )
        found = plan(wishes)
        terms, honest = found.best.design.terms(wishes), FEW_USERS // 2
        crowd = terms.crowd_of(FEW_USERS, honest, honest, 0)
        holds = central_epsilon(dataclasses.replace(terms, rounds=wishes.rounds), crowd)
        checks.must(
            "a plan promises what holds if as many are honest as was wished, over all rounds",
            (found.promise.coalition, found.promise.epsilon, found.promise.delta)
            == ("analyzer+users", holds, wishes.delta),
        )
        checks.must(
            "what a plan promises is among its guarantees", found.promise in found.guarantees
        )


def _check_intervals(checks: Checks, rng: np.random.Generator) -> None:
    shares = rng.normal(0.5, 0.1, FEW_USERS)
    columns = columns_of(_histogram(shares), [str(item) for item in range(FEW_USERS)])
    made = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    checks.must(
        "an interval that is shown reaches as far as its confidence of 95 % says",
        all(
            _close(row["interval_low"], share - _REACH * _ERROR)
            and _close(row["interval_high"], share + _REACH * _ERROR)
            for row, share in zip(made, shares.tolist(), strict=True)
        ),
    )
    checks.must(
        "what is shown of a share is its own estimate and error",
        all(
            (row["item"], row["label"], row["share"], row["standard_error"], row["refined"])
            == (item, str(item), share, _ERROR, share)
            for item, (row, share) in enumerate(zip(made, shares.tolist(), strict=True))
        ),
    )


def _close(figure: object, exact: float) -> bool:
    return isinstance(figure, float) and math.isclose(figure, exact, rel_tol=0, abs_tol=1e-12)


def _check_values_apart(checks: Checks) -> None:
    """A thousand items that nobody holds, of which the largest stands a little below, or above."""
    told = []
    for reach in (_REACH, 0.999 * _REACH_OF_ALL, 1.001 * _REACH_OF_ALL):
        frequencies = np.zeros(_ITEMS)
        frequencies[_ITEMS // 2] = reach * _ERROR
        told.append(_histogram(frequencies).tells_values_apart(0.95))
    checks.must(
        "noise of many items is not taken for a value that somebody holds", not any(told[:2])
    )
    checks.must("a value that stands out among all of them is seen", told[2])


def _check_page(checks: Checks) -> None:
    """Connect to a live page from this machine, and at another of the machine's addresses."""
    page = LivePage(page=b"page", feed=LiveFeed(StillClock()), secret="secret")  # noqa: S106  # none
    server = LiveServer(page)
    address = server.start()
    try:
        port = int(address.rpartition(":")[2].partition("/")[0])
        checks.must("a live page answers on loopback", _answers(_LOOPBACK, port))
        checks.must("a live page is served to this machine alone", not _answers(_ELSEWHERE, port))
    finally:
        server.stop()


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except TimeoutError:
        return False
    except OSError as error:
        return error.errno not in _REFUSED
    return True
