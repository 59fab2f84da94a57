"""Faults beside those that a rehearsal plants: a row of an integrity scenario must say "broken"."""

from typing import Any

import numpy as np
import pytest

import analyzer.release
import analyzer.staging
import analyzer.storage.store
import common.mechanisms.support
from common.crypto.hpke import SealContext
from common.crypto.hpke_pool import Opened, open_each
from common.mechanisms.base import Counts, Mixture, Vector
from common.mechanisms.support import SupportProbabilities
from common.messages.inclusion_proof import InclusionProof
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding
from deploy.audit.integrity.leverage import Leverage
from deploy.audit.integrity.scenarios import SCENARIOS
from tests.support.protocol_tasks import protocol_task

pytestmark = pytest.mark.slow

_PLAYS = {scenario.name: scenario.play for scenario in SCENARIOS}


def _findings(scenario: str, protocol: str = "mixdump") -> list[Finding]:
    task = protocol_task(protocol)
    audited = Audited(task_bytes=task.to_bytes(), n_users=20_000)
    return list(_PLAYS[scenario](audited, np.random.default_rng(5)).findings)


def _said(scenario: str, protocol: str = "mixdump") -> str:
    """What the rows that are broken say."""
    broken = [one for one in _findings(scenario, protocol) if one.verdict == "broken"]
    assert [] != broken
    return " ".join(one.sentence for one in broken)


@pytest.mark.parametrize("scenario", ["shuffler-drops", "shuffler-replaces"])
def test_a_device_that_believes_every_proof(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is shown, the own report is taken for counted."""
    monkeypatch.setattr(InclusionProof, "holds", lambda *_: True)

    assert "the device concerned has proof of it" in _said(scenario)


def test_a_device_that_believes_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """An honest shuffler is accused."""
    monkeypatch.setattr(InclusionProof, "holds", lambda *_: False)

    assert "no device raises an alarm" in _said("honest-shuffler")
    assert "no device whose reports are there is told otherwise" in _said("shuffler-drops")


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("shuffler-drops", "a batch that lacks a sentinel is not released"),
        ("shuffler-replaces", "a batch that lacks a sentinel is not released"),
        ("shuffler-keeps-order", "a batch in the order of arrival is not released"),
    ],
)
def test_an_analyzer_that_never_objects_to_sentinels(
    scenario: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judgement is left out of the release."""
    monkeypatch.setattr(analyzer.release, "judge", lambda *_: None)

    assert said in _said(scenario)


@pytest.mark.parametrize("factor", [0.98, 1.02])
@pytest.mark.parametrize("protocol", ["mixdump", "murs", "ldp-oue", "aue", "sbin"])
@pytest.mark.parametrize("scenario", ["maximal-gain", "message-flood"])
def test_an_estimator_that_is_off_by_two_hundredths(
    scenario: str, protocol: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every share comes out a fiftieth too large, or too small."""

    def off(
        support: Counts,
        mixture: Mixture,
        probabilities: SupportProbabilities,
        right: Any = common.mechanisms.support.debias,
    ) -> Vector:
        shares: Vector = factor * right(support, mixture, probabilities)
        return shares

    monkeypatch.setattr(common.mechanisms.support, "debias", off)

    assert "the estimate moves by what fake users' reports weigh" in _said(scenario, protocol)


@pytest.mark.parametrize("scenario", ["input-manipulation", "maximal-gain", "message-flood"])
def test_a_formula_that_leaves_out_what_targets_hold(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is expected stands beside what is measured, and is held against it."""
    gain = Leverage.gain

    def other(self: Leverage, share: float, own: float, **of: float) -> float:
        return gain(self, share, own, further=of["further"], each=of["each"], held=0.0)

    monkeypatch.setattr(Leverage, "gain", other)

    assert "the rise is the expected one, but for what was drawn" in _said(scenario)


def test_reports_that_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not open is taken for a report of zeros."""

    def open_all(key: Any, sealed: bytes, sealed_bytes: int, context: SealContext) -> Opened:
        opened = open_each(key, sealed, sealed_bytes, context)
        return Opened(plaintexts=opened.plaintexts, readable=b"\1" * len(opened.readable))

    monkeypatch.setattr("deploy.audit.stand_ins.in_place.open_each", open_all)

    assert "what does not open is told with the result" in _said("dishonest-clients")
