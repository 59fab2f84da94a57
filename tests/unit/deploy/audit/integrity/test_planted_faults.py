"""Each fault that integrity scenarios are there to see, planted: a row must say "broken"."""

from typing import Any

import numpy as np
import pytest

import analyzer.release
import analyzer.staging
import analyzer.store
import common.mechanisms.support
from analyzer.repeats import Repeats
from common.batch import BatchManifest
from common.errors import BatchConflictError
from common.hpke import SealContext
from common.hpke_pool import Opened, open_each
from common.inclusion import BatchCommitment, InclusionProof
from common.mechanisms.mechanism import Counts, Mixture, Vector
from common.mechanisms.support import SupportProbabilities
from common.submission import Outcome as Became
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding
from deploy.audit.integrity.scenarios import SCENARIOS
from shuffler.collection import Collection
from shuffler.rounds import Round
from tests.support.protocol_tasks import every_protocol_task

_PLAYS = {scenario.name: scenario.play for scenario in SCENARIOS}


def _findings(scenario: str, protocol: str = "mixdump") -> list[Finding]:
    task = every_protocol_task()[protocol]
    audited = Audited(task_bytes=task.to_bytes(), n_users=20_000)
    return list(_PLAYS[scenario](audited, np.random.default_rng(5)).findings)


def _said(scenario: str, protocol: str = "mixdump") -> str:
    """What the rows that are broken say."""
    broken = [one for one in _findings(scenario, protocol) if one.verdict == "broken"]
    assert [] != broken
    return " ".join(one.sentence for one in broken)


def test_an_analyzer_that_counts_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated reports are not dropped."""
    monkeypatch.setattr(Repeats, "without", lambda _, chunk: chunk)

    said = _said("shuffler-duplicates")
    assert "copies are dropped, and told with the result" in said
    assert "every report is left once" in said


def test_a_shuffler_that_takes_any_number_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """No length and no number is checked, one by one and in bulk."""
    checked: Any = Collection._take

    async def take(self: Collection, found: Round, envelope: bytes, token: bytes) -> Became:
        if len(envelope) > found.task.envelope_bytes:
            return Became.STORED
        became: Became = await checked(self, found, envelope, token)
        return became

    monkeypatch.setattr(Collection, "_take", take)

    assert "more reports than the task's is refused, whole" in _said("dishonest-clients")


def test_a_shuffler_that_takes_other_bytes_under_a_used_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What conflicts is stored as new."""
    honest: Any = Collection._store

    async def store(*arguments: Any) -> list[list[Became]]:
        return [
            [Became.STORED if one is Became.CONFLICT else one for one in became]
            for became in await honest(*arguments)
        ]

    monkeypatch.setattr(Collection, "_store", store)

    assert "other bytes under an id that was used are refused" in _said("dishonest-clients")


def test_ciphertexts_that_are_not_bound_to_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's digest is left out of what is sealed: a replay opens under another task."""
    monkeypatch.setattr(
        SealContext, "info", lambda self: b"label" + bytes([self.sender, self.recipient])
    )

    assert "reports of one task are none of another" in _said("shuffler-replays")
    assert "one of another task is refused" in _said("dishonest-clients")


@pytest.mark.parametrize("scenario", ["shuffler-drops", "shuffler-replaces"])
def test_a_device_that_believes_every_proof(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is shown, the own report is taken for counted."""
    monkeypatch.setattr(InclusionProof, "holds", lambda *_: True)

    assert "the device concerned has proof of it" in _said(scenario)


def test_a_device_that_believes_every_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shuffler signs in the analyzer's place that everybody was counted."""
    monkeypatch.setattr(BatchCommitment, "check", lambda *_: None)

    assert "no device believes what the shuffler signs" in _said("shuffler-drops")


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


def test_staging_that_takes_a_batch_below_n_min(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is announced is compared with nothing."""
    monkeypatch.setattr(analyzer.staging, "_check_manifest", lambda *_: None)

    said = _said("shuffler-injects")
    assert "a batch below n_min is refused" in said
    assert "more reports than belong to so many users are refused" in said


def test_staging_that_takes_a_second_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another batch of a task is taken for the first one, without a word."""
    once: Any = analyzer.store._begin_batch

    def begin(connection: Any, manifest: BatchManifest) -> bool:
        try:
            return bool(once(connection, manifest))
        except BatchConflictError:
            return False

    monkeypatch.setattr(analyzer.store, "_begin_batch", begin)

    assert "a second batch of a task is refused" in _said("shuffler-replays")


def test_a_shuffler_that_takes_a_token_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token is remembered."""
    monkeypatch.setattr("shuffler.submission_table._tokens", lambda *_: None)

    assert "a second time it is refused" in _said("dishonest-clients")


def test_reports_that_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not open is taken for a report of zeros."""

    def open_all(key: Any, sealed: bytes, sealed_bytes: int, context: SealContext) -> Opened:
        opened = open_each(key, sealed, sealed_bytes, context)
        return Opened(plaintexts=opened.plaintexts, readable=b"\1" * len(opened.readable))

    monkeypatch.setattr("deploy.audit.integrity.in_place.open_each", open_all)

    assert "what does not open is told with the result" in _said("dishonest-clients")
