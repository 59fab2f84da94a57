"""Poisoning and the dishonest shuffler on single tasks; the runner's tests run every protocol."""

from collections.abc import Sequence

import numpy as np
import pytest

from common.task.task import Task
from deploy.audit.finding import Finding
from deploy.audit.scenario import AuditSubject
from deploy.audit.scenarios import ATTACKS
from tests.support.protocol_tasks import protocol_task

_POISONING = [scenario.name for scenario in ATTACKS[:5]]


def _findings(task: Task, n_users: int, names: Sequence[str]) -> list[Finding]:
    subject = AuditSubject(task_bytes=task.to_bytes(), n_users=n_users)
    return [
        finding
        for number, scenario in enumerate(ATTACKS)
        if scenario.name in names
        for finding in scenario.run(subject, np.random.default_rng([3, number])).findings
    ]


@pytest.mark.parametrize("protocol", ["murs", "od-hp", "sbin", "aue", "ldp-grr", "ldp-oue"])
def test_poisoning_a_handful_of_users_gains_what_is_calculated(protocol: str) -> None:
    """The formula holds for three users too."""
    found = _findings(protocol_task(protocol), 3, _POISONING)

    assert [] == [one for one in found if not one.passed]
    assert _POISONING == [one.scenario for one in found]


def test_a_seed_gives_the_same_findings_again() -> None:
    """Keys differ; figures do not."""
    task, names = protocol_task("fe1"), [*_POISONING, "shuffler-drops"]

    assert _findings(task, 20_000, names) == _findings(task, 20_000, names)
