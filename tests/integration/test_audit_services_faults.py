"""
Faults planted in the services, one at a time: each is seen, and named.

Each test plays the services in this process, so that what is changed here is what runs.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

import analyzer.finalize
import shuffler.analyzer_client
import shuffler.collection
import shuffler.delivery
import shuffler.permutation
import shuffler.server
import user_agent.agent
import user_agent.contribution
from analyzer.finalize import mixture_of
from common.accounting.guarantees import guarantees
from common.mechanisms.base import Mechanism, Mixture, Reports
from deploy.audit.audited import Audited
from shuffler.storage.batch_key import BatchKey
from tests.support.audited_services import audited, audited_task, played, rows
from user_agent.contribution import Answer, Contributor, draw_dummies

pytestmark = pytest.mark.slow

_LENGTHS = "Lengths on the wire"
_NUMBER = "Number of messages"
_CONTENTS = "Contents of the batch"
_ORDER = "Order and time of the delivery"
_LOGS = "Logs, metrics and output"
_DISK = "The shuffler's disk"
_ARRIVED = "Fewer users than planned"
_DEVICES = "Devices, retries and tasks"
_SOURCES = "Generators of the running services"

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


def test_refused_reports_that_a_guarantee_leaves_out_are_seen(monkeypatch: Plant) -> None:
    """Three reports of 83 users: the figure moves in the third digit."""
    monkeypatch.setattr(analyzer.finalize, "guarantees", lambda task, n, _r: guarantees(task, n, 0))

    _seen(_ARRIVED, "guarantees of the early batch are those of the users who came")


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

    monkeypatch.setattr(analyzer.finalize, "mixture_of", mixture)

    _seen(_CONTENTS, "the estimate is what a plain computation gives")


def test_an_order_from_another_generator_is_seen(monkeypatch: Plant) -> None:
    """The shuffler makes the generator that it should, and permutes with another."""
    honest = shuffler.delivery.Deliveries

    def deliveries(**of: Any) -> shuffler.delivery.Deliveries:
        return honest(**of | {"rng": np.random.default_rng()})

    monkeypatch.setattr(shuffler.server, "Deliveries", deliveries)

    _seen(_SOURCES, "orders of the shuffler come from the generator examined")
