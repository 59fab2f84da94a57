"""Attacks on honest code and on weakened code, for every protocol."""

from collections.abc import Sequence

import numpy as np
import pytest

from common.task.task import Task
from deploy.audit.finding import Finding
from deploy.audit.scenario import AuditSubject
from deploy.audit.scenarios import ATTACKS
from deploy.audit.statistics import MAX_TESTS
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_NAMES = [scenario.name for scenario in ATTACKS]
_POISONING = _NAMES[:5]


def _findings(task: Task, n_users: int = 20_000, names: Sequence[str] = _NAMES) -> list[Finding]:
    subject = AuditSubject(task_bytes=task.to_bytes(), n_users=n_users)
    return [
        finding
        for number, scenario in enumerate(ATTACKS)
        if scenario.name in names
        for finding in scenario.run(subject, np.random.default_rng([3, number])).findings
    ]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", sorted(ITEM_PROTOCOLS))
def test_honest_code_passes(protocol: str) -> None:
    """Every finding of every scenario; fails by chance with probability 1e-5 over seeds."""
    found = _findings(protocol_task(protocol))

    assert [] == [one for one in found if not one.passed]
    assert {"holds", "known limit"} == {one.verdict for one in found}
    names = _NAMES[5:] if protocol == "ldp-sw" else _NAMES
    assert names == list(dict.fromkeys(one.scenario for one in found))
    assert sum(one.tests for one in found) < MAX_TESTS / 20


@pytest.mark.parametrize("protocol", ["murs", "od-hp", "sbin", "aue", "ldp-grr", "ldp-oue"])
def test_poisoning_a_handful_of_users_gains_what_is_calculated(protocol: str) -> None:
    """The long suite runs every protocol among thousands."""
    found = _findings(protocol_task(protocol), 3, _POISONING)

    assert [] == [one for one in found if not one.passed]


def test_a_seed_gives_the_same_findings_again() -> None:
    """Keys differ; figures do not."""
    task, names = protocol_task("fe1"), [*_POISONING, "shuffler-drops"]

    assert _findings(task, names=names) == _findings(task, names=names)


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", ["mixdump", "sbin", "sageo", "ldp-sw", "ldp-olh-strings", "murs"]
)
def test_weaknesses_are_noticed_whatever_the_protocol(protocol: str) -> None:
    """With a shuffler that samples, one that adds dummies, without dummies, by strings."""
    subject = AuditSubject(task_bytes=protocol_task(protocol).to_bytes(), n_users=20_000)
    for scenario in ATTACKS:
        outcome = scenario.run(subject, np.random.default_rng(3), broken=True)
        failed = [one for one in outcome.findings if not one.passed]
        assert failed or not outcome.findings, scenario.name
