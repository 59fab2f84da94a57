"""
Faults planted in the services, one at a time: each is seen, and named.

Each test plays the services in this process, so that what is changed here is what runs.
"""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from randomgen import ChaCha

import analyzer.conclusion
import shuffler.client
import shuffler.collection
import shuffler.delivery
import shuffler.permutation
import shuffler.server
import user_agent.agent
import user_agent.contribution
from analyzer.conclusion import mixture_of
from common.accounting.coalitions import guarantees
from common.batch import BatchManifest, BatchState
from common.mechanisms.mechanism import Mechanism, Mixture, Reports
from common.runtime import logs
from common.runtime.state import StateDirectory
from common.submission import Outcome, Submission, unpack
from common.task import Task
from common.wire import manifest_to_wire
from deploy.audit.audited import Audited
from protos.shuffledp.v1 import analyzer_pb2
from shuffler.batch import Event, asked_to_close, due
from shuffler.batch_key import BatchKey
from tests.support.audited_services import audited, audited_task, played, rows
from user_agent.budget import SavedSubmission
from user_agent.contribution import Answer, Contributor, draw_dummies

pytestmark = pytest.mark.slow

_LENGTHS = "lengths on the wire"
_NUMBER = "number of messages"
_CONTENTS = "contents of the batch"
_ORDER = "order and time of the delivery"
_LOGS = "logs, metrics and output"
_DISK = "the shuffler's disk"
_ARRIVED = "fewer users than planned"
_DEVICES = "devices, retries and tasks"
_SOURCES = "generators of the running services"

Plant = pytest.MonkeyPatch


def _seen(title: str, *named: str, of: Audited | None = None) -> None:
    """Play, and expect that a row is broken and names some checks."""
    row = rows(played(of))[title]

    assert "broken" == row.verdict
    for check in named:
        assert check in row.sentence


def test_nothing_is_seen_where_nothing_is_planted() -> None:
    """Every row holds over the services as they are."""
    assert {"holds"} == {row.verdict for row in rows(played()).values()}


def test_an_order_that_is_kept_is_seen(monkeypatch: Plant) -> None:
    """The shuffler does not permute."""
    monkeypatch.setattr(shuffler.permutation, "permute", lambda reports, _rng: reports)

    _seen(_ORDER, "neighbours of one user in the first batch", "neighbours that lay as neighbours")


def test_an_order_that_is_kept_within_chunks_is_seen(monkeypatch: Plant) -> None:
    """It permutes pieces of fifty reports, and leaves each piece as it is."""

    def permute(reports: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        starts = np.arange(0, len(reports), 50)
        parts = [reports[start : start + 50] for start in rng.permutation(starts)]
        return np.concatenate(parts) if parts else reports

    monkeypatch.setattr(shuffler.permutation, "permute", permute)

    _seen(_ORDER, "neighbours of one user in the first batch")


class _Unshuffling:
    """A generator that permutes nothing."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)

    def permutation(self, count: int) -> Any:
        return np.arange(count)


def test_an_own_report_that_stands_first_is_seen(monkeypatch: Plant) -> None:
    """Devices do not shuffle their reports: of two messages the first carries the value."""
    honest = Contributor.answer

    def answer(self: Contributor, value: int, rng: Any) -> Answer:
        return honest(self, value, _Unshuffling(rng))  # type: ignore[arg-type]  # it draws the rest

    monkeypatch.setattr(Contributor, "answer", answer)

    _seen(_ORDER, "place of the own report in its submission")


def test_a_length_that_depends_on_the_value_is_seen(monkeypatch: Plant) -> None:
    """Odd values' envelopes are a byte longer."""
    honest = Contributor.answer

    def answer(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        made = honest(self, value, rng)
        return dataclasses.replace(made, envelope=made.envelope + bytes(value % 2))

    monkeypatch.setattr(Contributor, "answer", answer)

    _seen(_LENGTHS, "every value's envelope has one length", "every value's request has one length")


def test_a_number_of_dummies_that_varies_is_seen(monkeypatch: Plant) -> None:
    """Where a user must add two, some add one; padding hides it from the network alone."""

    def draw(mechanism: Mechanism, dummies: Any, rng: np.random.Generator) -> Reports:
        drawn = draw_dummies(mechanism, dummies, rng)
        return drawn[: len(drawn) - int(rng.integers(0, 2))]

    monkeypatch.setattr(user_agent.contribution, "draw_dummies", draw)

    _seen(
        _NUMBER, "every user has 3 to 3 reports that are no padding", "as many dummies as the law"
    )


def test_a_number_of_dummies_that_depends_on_the_value_is_seen(monkeypatch: Plant) -> None:
    """It keeps the range of its law: each of one and two is as common as it should be."""
    honest, values = Contributor.answer, list[int]()

    def answer(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        values.append(value)
        return honest(self, value, rng)

    def draw(mechanism: Mechanism, _dummies: Any, rng: np.random.Generator) -> Reports:
        return mechanism.dummies(2 if values[-1] < 8 else 1, rng)

    monkeypatch.setattr(Contributor, "answer", answer)
    monkeypatch.setattr(user_agent.contribution, "draw_dummies", draw)

    _seen(
        _NUMBER,
        "number of dummies with small values",
        "number of dummies with large values",
        of=audited(audited_task(dummies_per_user=1.5), users=400),
    )


def test_a_value_that_a_device_logs_is_seen(monkeypatch: Plant) -> None:
    """Under a field that there is, and in a task of few items, whose numbers are common."""
    honest = user_agent.agent.Agent.contribute

    async def contribute(self: Any, digest: Any, value: int, person: str) -> Any:
        logs.event("answering", {"n_users": value}, level="DEBUG")
        return await honest(self, digest, value, person)

    monkeypatch.setattr(user_agent.agent.Agent, "contribute", contribute)

    _seen(_LOGS, "the device logs no number and no batch", "no planted value is in a log")


def _telling(told: Callable[[bytes], None]) -> Callable[[bytes, Task], Submission]:
    def told_of(plaintext: bytes, task: Task) -> Submission:
        submission = unpack(plaintext, task)
        told(submission.submission_id)
        return submission

    return told_of


def test_a_submission_id_that_the_shuffler_logs_is_seen(monkeypatch: Plant) -> None:
    """Under a field that there is."""

    def told(submission_id: bytes) -> None:
        logs.event("submission stored", {"batch_id": submission_id.hex()}, level="DEBUG")

    monkeypatch.setattr(shuffler.collection, "unpack", _telling(told))

    _seen(
        _LOGS, "a submission id is not in a log", "a submission id is not in the services' output"
    )


def test_a_submission_id_that_reaches_the_analyzer_is_seen(monkeypatch: Plant) -> None:
    """In a field of the manifest that no program of this version reads."""
    ids: list[bytes] = []
    unknown = b"\xaa\x06\x10"  # field 101, sixteen bytes

    def manifest(of: BatchManifest) -> analyzer_pb2.DeliverBatchRequest:
        message = manifest_to_wire(of)
        message.manifest.MergeFromString(unknown + ids[-1])
        return message

    monkeypatch.setattr(shuffler.collection, "unpack", _telling(ids.append))
    monkeypatch.setattr(shuffler.client, "manifest_to_wire", manifest)

    _seen(
        _ORDER,
        "no submission id reaches the analyzer",
        "the analyzer is sent the fields of the protocol alone",
    )


def test_a_guarantee_for_the_users_planned_is_seen(monkeypatch: Plant) -> None:
    """It says how private the batch would have been, had everybody come."""
    monkeypatch.setattr(
        analyzer.conclusion, "guarantees", lambda task, _n, r: guarantees(task, task.target_size, r)
    )

    _seen(
        _ARRIVED,
        "guarantees of the early batch are those of the users who came",
        "the ledger charges what is claimed of the early batch",
    )


def test_refused_reports_that_a_guarantee_leaves_out_are_seen(monkeypatch: Plant) -> None:
    """Three reports of 83 users: the figure moves in the third digit."""
    monkeypatch.setattr(
        analyzer.conclusion, "guarantees", lambda task, n, _r: guarantees(task, n, 0)
    )

    _seen(_ARRIVED, "guarantees of the early batch are those of the users who came")


def test_a_key_of_a_batch_that_stays_is_seen(monkeypatch: Plant) -> None:
    """With it, deleted blocks of the disk could be read."""
    monkeypatch.setattr(StateDirectory, "destroy", lambda _self, _name: None)

    _seen(_DISK, "no key of a batch is left, over", "no key of a batch is left, stopped")


def test_reports_that_lie_open_on_the_disk_are_seen(monkeypatch: Plant) -> None:
    """What comes alone is stored as it came; what workers store stays encrypted."""
    opened, mark = BatchKey.open, bytes(12)

    def seal(_self: BatchKey, row: bytes, _place: bytes = b"") -> bytes:
        return mark + bytes(row)

    def read(self: BatchKey, sealed: bytes, place: bytes = b"") -> bytes:
        return sealed[12:] if sealed.startswith(mark) else opened(self, sealed, place)

    monkeypatch.setattr(BatchKey, "seal", seal)
    monkeypatch.setattr(BatchKey, "open", read)

    _seen(
        _DISK,
        "no sealed report lies open on the disk, collecting",
        "no sealed report lies open on the disk, delivering",
    )


def test_an_estimate_that_is_wrong_is_seen(monkeypatch: Plant) -> None:
    """It takes a hundredth of the users for dummies."""

    def mixture(*of: Any, **more: Any) -> Mixture:
        right = mixture_of(*of, **more)
        return dataclasses.replace(right, n_real=0.99 * right.n_real)

    monkeypatch.setattr(analyzer.conclusion, "mixture_of", mixture)

    _seen(_CONTENTS, "the estimate is what a plain computation gives")


def test_a_batch_that_is_delivered_below_n_min_is_seen(monkeypatch: Plant) -> None:
    """The analyzer refuses it; the shuffler should never have closed it."""

    def asked(state: BatchState, n_users: int, terms: Any) -> Event | None:
        return asked_to_close(state, n_users, dataclasses.replace(terms, n_min=1))

    def next_one(state: BatchState, n_users: int, terms: Any, now: float) -> Event | None:
        return due(state, n_users, dataclasses.replace(terms, n_min=1), now)

    monkeypatch.setattr(shuffler.collection, "asked_to_close", asked)
    monkeypatch.setattr(shuffler.delivery, "due", next_one)

    _seen(
        _ARRIVED,
        "a batch below n_min is not closed for its operator",
        "nothing of a batch below n_min is delivered",
        "a batch below n_min expires at its deadline",
    )


def test_a_generator_with_a_constant_key_is_seen(monkeypatch: Plant) -> None:
    """ChaCha, of twenty rounds, under a key that looks like any other."""
    key = int.from_bytes(bytes.fromhex("9f3ac1d7" * 8))
    monkeypatch.setattr(
        shuffler.server,
        "secure_generator",
        lambda: np.random.Generator(ChaCha(key=key, rounds=20)),
    )

    _seen(_SOURCES, "no two generators have the same key")


def test_a_generator_that_can_be_foretold_is_seen(monkeypatch: Plant) -> None:
    """The Mersenne Twister, well seeded."""
    monkeypatch.setattr(
        shuffler.server,
        "secure_generator",
        lambda: np.random.Generator(np.random.MT19937()),
    )

    _seen(
        _SOURCES, "the generator of the shuffler is ChaCha", "the generator of the shuffler has 20"
    )


def test_an_order_from_another_generator_is_seen(monkeypatch: Plant) -> None:
    """The shuffler makes the generator that it should, and permutes with another."""
    honest = shuffler.delivery.Deliveries

    def deliveries(**of: Any) -> shuffler.delivery.Deliveries:
        return honest(**of | {"rng": np.random.default_rng()})

    monkeypatch.setattr(shuffler.server, "Deliveries", deliveries)

    _seen(_SOURCES, "orders of the shuffler come from the generator examined")


def test_a_retry_that_is_drawn_anew_is_seen(monkeypatch: Plant) -> None:
    """What was not acknowledged is randomized again: ε is spent twice, and a user counts twice."""
    honest, tried = user_agent.agent.Agent._send, set[bytes]()

    async def send(self: Any, saved: SavedSubmission) -> None:
        if saved.envelope in tried:
            signed = await self._shuffler.fetch_task(saved.task_digest)
            traced: Any = vars(user_agent.agent)["Contributor"]  # as it is meanwhile
            contributor = traced(Task.from_bytes(signed.task_bytes), saved.task_digest)
            made = await asyncio.to_thread(contributor.answer, 0, self._rng)
            saved = dataclasses.replace(saved, envelope=made.envelope)
        tried.add(saved.envelope)
        await honest(self, saved)

    monkeypatch.setattr(user_agent.agent.Agent, "_send", send)

    _seen(_DEVICES, "one answer was sent twice, and byte for byte the same")


def test_users_who_are_dropped_are_seen(monkeypatch: Plant) -> None:
    """Every fifth user who comes alone is acknowledged, and not stored."""
    honest, count = shuffler.collection.Collection._take, iter(range(10**9))

    async def take(self: Any, *of: Any) -> Outcome:
        return Outcome.STORED if next(count) % 5 == 4 else await honest(self, *of)

    monkeypatch.setattr(shuffler.collection.Collection, "_take", take)

    _seen(_CONTENTS, "no report is lost in the first batch", "the manifest says how many users")
