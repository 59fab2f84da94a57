"""What honest code comes to, for every protocol."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding
from deploy.audit.integrity.rehearsed import SENTINELS, people, rehearsed
from deploy.audit.integrity.scenarios import SCENARIOS
from deploy.audit.significance import MOST_TESTS
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_NAMES = [scenario.name for scenario in SCENARIOS]


def _findings(task: Task, n_users: int = 20_000, names: Sequence[str] = _NAMES) -> list[Finding]:
    audited = Audited(task_bytes=task.to_bytes(), n_users=n_users)
    return [
        finding
        for number, scenario in enumerate(SCENARIOS)
        if scenario.name in names
        for finding in scenario.play(audited, np.random.default_rng([3, number])).findings
    ]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", sorted(ITEM_PROTOCOLS))
def test_honest_code_holds(protocol: str) -> None:
    """Every row passes, of every scenario; fails by chance with probability 1e-5 over seeds."""
    found = _findings(protocol_task(protocol))

    assert [] == [one for one in found if not one.passed]
    assert {"holds", "known limit"} == {one.verdict for one in found}
    assert sum(one.tests for one in found) < MOST_TESTS / 20


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows() -> None:
    """Keys differ, figures do not; and every scenario has rows, which bear its name."""
    task = protocol_task("fe1")
    found = _findings(task)

    assert _findings(task) == found
    assert [one.name for one in SCENARIOS] == list(dict.fromkeys(row.scenario for row in found))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["murs", "ldp-warner"])
def test_a_handful_of_users_is_enough(protocol: str) -> None:
    """Of tasks that are audited for almost nobody."""
    found = _findings(protocol_task(protocol), n_users=3)

    assert [] == [one for one in found if not one.passed]


def test_crafted_dummies_gain_more_than_crafted_reports_and_those_more_than_lies() -> None:
    """In the order of what each may choose."""
    order = ["input-manipulation", "maximal-gain", "dummy-abuse", "message-flood"]
    measured = {
        one.scenario: one.measured or 0.0
        for one in _findings(protocol_task("mixdump"), names=order)
    }

    assert sorted(measured[name] for name in order) == [measured[name] for name in order]


@pytest.mark.parametrize("protocol", sorted(ITEM_PROTOCOLS))
def test_every_protocol_can_be_rehearsed(protocol: str) -> None:
    """With its own mechanism, laws and weights."""
    task = protocol_task(protocol)
    found = rehearsed(task.to_bytes())

    assert found is not None
    assert (task.protocol, task.dummies.law, task.shuffler.law, task.suite) == (
        found.protocol,
        found.dummies.law,
        found.shuffler.law,
        found.suite,
    )
    assert task.mechanism.name == found.mechanism.name
    assert task.item_mechanism.true_weight == found.item_mechanism.true_weight
    assert people(found) + SENTINELS <= found.target_size


def test_a_task_of_thousands_of_dummies_is_rehearsed_with_few() -> None:
    """What it would take to seal them all is no test of who notices what."""
    task = protocol_task("puredump")
    many = replace(task, dummies=replace(task.dummies, per_user=3000))
    found = rehearsed(many.to_bytes())

    assert found is not None
    assert found.reports_per_user < 20
