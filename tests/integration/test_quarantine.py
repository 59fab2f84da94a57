"""A batch spoiled by one connection is quarantined, released with a note, and counted right."""

import json
import sqlite3
from contextlib import closing
from typing import Final

import numpy as np
import pytest

from shuffledp.common.crypto.hpke import HpkePublicKey, envelope_context, report_context
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.mechanisms.base import Counts
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.task.task import Task
from tests.support.clients import command, result_of, run_as_operator, submit_bulk
from tests.support.services import Services

_HONEST: Final = 3000
_JUNK: Final = 160
_NOTE: Final = "160 submissions from one [network]; \x1b the others are fine"
_CALL: Final = 500
"""Submissions in one call."""


def _submissions(signed: SignedTask, rng: np.random.Generator) -> tuple[list[bytes], Counts]:
    """Return honest users' envelopes, each with a dummy, then the junk; and the honest cells."""
    task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
    mechanism = mechanism_of(task)
    own = mechanism.randomize(np.arange(_HONEST) % 5, rng)
    dummies = mechanism.dummies(_HONEST, rng)
    seal = HpkePublicKey(task.suite, task.analyzer_key).sealer(report_context(digest))
    sealed = [
        seal(one.tobytes()) + seal(dummy.tobytes()) for one, dummy in zip(own, dummies, strict=True)
    ]
    sealed += [rng.bytes(2 * task.sealed_report_bytes) for _ in range(_JUNK)]
    key = HpkePublicKey(task.suite, task.shuffler_key)
    envelopes = [
        key.sealer(envelope_context(digest))(rng.bytes(16) + reports) for reports in sealed
    ]
    return envelopes, mechanism.tally(np.concatenate([own, dummies]))


def _cells(services: Services, digest: bytes) -> Counts:
    query = "SELECT cells FROM results WHERE task_digest = ?"
    with closing(
        sqlite3.connect(services.directory / "analyzer" / "analyzer.sqlite")
    ) as connection:
        [cells] = connection.execute(query, (digest,)).fetchone()
    return np.frombuffer(cells, np.int64)


@pytest.mark.slow
async def test_a_batch_with_junk_is_released_with_a_note(services: Services) -> None:
    """The cells are the honest users'; the junk's reports are refused, and charged for."""
    signed = await services.publish(n_min=_HONEST, target_size=_HONEST + _JUNK)
    task = signed.digest().hex()
    envelopes, honest = _submissions(signed, np.random.default_rng(1))
    for start in range(0, len(envelopes), _CALL):  # of which the junk is in one call
        await submit_bulk(services, signed, envelopes[start : start + _CALL])
    reason = "320 of the batch's 6320 reports were refused; most_refused_share is 0.05"
    complaint = ""
    while reason not in complaint:
        status, _, complaint = await run_as_operator(services, "result", task)
        assert 1 == status
    assert "batch release, or batch drop" in complaint
    assert "quarantined: decide with" in await command(services, "task", "show", task)

    noted = ("batch", "release", task, "--note", _NOTE)
    decided = json.loads(await command(services, *noted, "--json"))
    result = await result_of(services, signed)
    assert ("release", reason, _NOTE) == tuple(
        decided[name] for name in ("decision", "reason", "note")
    )
    np.testing.assert_array_equal(honest, _cells(services, signed.digest()))
    assert (_HONEST + _JUNK, 2 * _JUNK) == (result.n_users, sum(result.refused.values()))
    assert set(range(5)) == set(np.argsort(result.histogram.frequencies)[-5:].tolist())
    printed = await command(services, "result", task, "--top", "5")
    assert "although it failed a check: 320 of" in " ".join(printed.split())
    assert "\x1b" not in printed

    assert decided == json.loads(await command(services, *noted, "--json"))
    status, _, complaint = await run_as_operator(services, "batch", "drop", task, "--note", "no")
    assert (1, True) == (status, "the task is released; the operator decided" in complaint)
    identity = str(services.directory / "analyzer" / "identity.pub")
    pinned = ("--analyzer-identity", identity)
    entries = json.loads(await command(services, "ledger", *pinned, "--json"))["entries"]
    found = [entry for entry in entries if entry["task_digest"] == task]
    assert [decided["entry"], decided["entry"] + 1] == [entry["entry"] for entry in found]
    assert 2 * _JUNK == found[1]["n_refused"]
    assert "Signatures of decisions verified" in await command(services, "ledger", *pinned)
    other = str(services.directory / "shuffler" / "identity.pub")
    status, _, complaint = await run_as_operator(services, "ledger", "--analyzer-identity", other)
    assert (1, True) == (status, "is not signed by the pinned analyzer" in complaint)
