"""The audit's run of the three services passes, and fails on altered records."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.audit.finding import Finding
from shuffledp.audit.harness.services import RecordedCall
from shuffledp.audit.observation import party_views
from shuffledp.audit.observation.recorder import Moment, RunRecord, record_run
from shuffledp.audit.scenario import QUICK, AuditSubject
from tests.support.protocol_tasks import protocol_task

_USERS = 160

View = Callable[[RunRecord], Finding]
Alteration = Callable[[RunRecord], dict[str, Any]]
"""Returns the changed fields of a record."""


def _subject(protocol: str = "mixdump") -> AuditSubject:
    return AuditSubject(
        task=protocol_task(protocol), n_users=_USERS, sizes=dataclasses.replace(QUICK, users=_USERS)
    )


@pytest.fixture(scope="module")
def record() -> RunRecord:
    """One run; fails by chance with probability 1e-6 over the services' randomness."""
    return record_run(_subject(), np.random.default_rng(1))


def test_honest_services_reveal_nothing(record: RunRecord) -> None:
    """Every view passes, and the batch is large enough to test its order."""
    findings = list(party_views.views_of(record))

    assert [] == [one for one in findings if not one.passed]
    assert len({one.title for one in findings}) == len(findings) == 5
    assert _USERS == record.result.n_users == len(record.submissions)
    assert sum(one.tests for one in findings) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["sbin", "sageo", "ldp-sw", "signed"])
def test_other_protocols_too(protocol: str) -> None:
    """A shuffler that samples, one that adds dummies, and a task without dummies pass too."""
    record = record_run(_subject(protocol), np.random.default_rng(1))

    assert [] == [one for one in party_views.views_of(record) if not one.passed]


def _on_disk(record: RunRecord, party: str, moment: Moment, content: bytes) -> dict[str, Any]:
    files = record.disks[party, moment] | {"file": content}
    return {"disks": record.disks | {(party, moment): files}}


def _longer(calls: Sequence[RecordedCall], method: str, extra: bytes) -> tuple[RecordedCall, ...]:
    """Return calls with a further one, whose last request is longer."""
    call = next(each for each in calls if each.method == method)
    requests = [*call.requests[:-1], call.requests[-1] + extra]
    return (*calls, dataclasses.replace(call, requests=requests))


_ALTERATIONS: Final[dict[str, tuple[View, Alteration]]] = {
    "a request's length follows from its submission's": (
        party_views.network_view,
        lambda one: {"to_shuffler": _longer(one.to_shuffler, "Submit", b"\x1a\x01x")},
    ),
    "no sealed report is on its disk, over": (
        party_views.shuffler_view,
        lambda one: _on_disk(one, "shuffler", "over", one.sent[5].hex().encode()),
    ),
    "no batch key is on its disk, delivering": (
        party_views.shuffler_view,
        lambda one: _on_disk(one, "shuffler", "delivering", next(iter(one.batch_keys.values()))),
    ),
    "its disk held all submissions": (
        party_views.shuffler_view,
        lambda one: {"groups": one.groups[1:]},
    ),
    "no submission id is on its disk, over": (
        party_views.analyzer_disk,
        lambda one: _on_disk(one, "analyzer", "over", one.submissions[3][0]),
    ),
    "calls contain the protocol's fields only": (
        party_views.analyzer_view,
        lambda one: {"to_analyzer": _longer(one.to_analyzer, "GetTask", b"\x7a\x03abc")},
    ),
    "no planted name is logged": (
        party_views.logs_and_metrics,
        lambda one: {"logs": f'{one.logs}{{"level": "INFO", "event": "{one.names[0]}"}}\n'},
    ),
    "the only numbers are those of the batch": (
        party_views.logs_and_metrics,
        lambda one: {"logs": f'{one.logs}{{"event": "a", "level": "INFO", "n_users": 7}}\n'},
    ),
    "the result's numbers are correct": (
        party_views.analyzer_view,
        lambda one: {"result": dataclasses.replace(one.result, n_users=_USERS - 1)},
    ),
}


@pytest.mark.parametrize("check", _ALTERATIONS)
def test_an_altered_record_fails(record: RunRecord, check: str) -> None:
    """The finding of that view names the failed check."""
    view, alteration = _ALTERATIONS[check]
    finding = view(dataclasses.replace(record, **alteration(record)))

    assert not finding.passed
    assert check in finding.sentence
