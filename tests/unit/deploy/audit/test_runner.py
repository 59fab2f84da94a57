"""A run as a whole: seeds, processes, failures, and the self-test."""

import dataclasses
import json

import numpy as np
import pytest

from analyzer.task_builder import complete
from deploy.audit.finding import Findings
from deploy.audit.harness.tasks import reduced_draft
from deploy.audit.report.audit_report import as_json
from deploy.audit.runner import audit, run, scenarios_named, self_test
from deploy.audit.scenario import AuditSubject, Scenario
from deploy.audit.scenarios import SCENARIOS
from deploy.terminal.json_output import dumps
from tests.support.audits import audited
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_SOME = ("linking", "puredump", "draws", "shuffler-drops")


def _figures(seed: int, *names: str, processes: int = 1) -> str:
    report = audit(
        audited(games=20_000), seed=seed, scenarios=scenarios_named(names), processes=processes
    )
    assert report.passed
    return dumps(as_json(report)["findings"])


@pytest.mark.slow
def test_a_seed_gives_the_same_figures_whatever_runs_beside_it() -> None:
    """Alone, with others, and in spawned processes; another seed gives others."""
    first = _figures(3, *_SOME)

    assert first == _figures(3, *_SOME, processes=2)
    assert _figures(3, "linking") == dumps([json.loads(first)[0]])
    assert first != _figures(4, *_SOME)


def _fails(_: AuditSubject, __: np.random.Generator) -> Findings:
    raise RuntimeError("the value 1234567 is not there")


def test_code_that_raises_is_a_finding_that_repeats_no_value() -> None:
    """A scenario that cannot run has not passed."""
    scenario = Scenario(name="fails", title="It fails", check=_fails, weakness="None.")
    [row] = run(scenario, audited(), 1).findings

    assert not row.passed
    assert "RuntimeError in test_runner.py" in row.sentence
    assert "1234567" not in dumps(dataclasses.asdict(row))


@pytest.mark.parametrize("protocol", ITEM_PROTOCOLS)
def test_a_small_run_has_the_mechanism_weights_and_distributions_of_the_task(protocol: str) -> None:
    """Only the batch is smaller."""
    task = protocol_task(protocol)
    draft = reduced_draft(task.to_bytes(), most_reports=2500, n_users=(16, 64, 256))
    assert draft is not None
    small = complete(draft, analyzer_key=task.analyzer_key, nonce=task.nonce)

    assert (task.protocol, task.mechanism.name) == (small.protocol, small.mechanism.name)
    assert (task.dummies.law, task.shuffler.law) == (small.dummies.law, small.shuffler.law)
    assert task.item_mechanism.true_weight == small.item_mechanism.true_weight
    assert (task.suite, True) == (small.suite, small.n_min <= 256)


def test_scenarios_for_other_kinds_are_named_and_not_run() -> None:
    """Nothing is missing silently."""
    chosen = scenarios_named(["linking", "draws"])
    report = audit(audited(kind_task("duchi")), seed=1, scenarios=chosen, processes=1)

    assert report.other_kinds == ("linking",)
    assert report.idle == ("draws",)


@pytest.mark.slow
def test_every_alarm_rings() -> None:
    """On a task that has something to break in every scenario."""
    subject = audited(batches=800_000, reports=400_000, devices=4_000, users=300)
    alarms = self_test(subject, seed=1)

    assert [alarm.scenario.name for alarm in alarms if not alarm.detected] == []


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [*ITEM_PROTOCOLS, *OF_OTHER_KINDS])
def test_every_protocol_passes_its_audit_and_its_self_test(protocol: str) -> None:
    """All but the running services, of which one run is enough."""
    task = (kind_task if protocol in OF_OTHER_KINDS else protocol_task)(protocol)
    some = [scenario for scenario in SCENARIOS if scenario.name != "services"]
    alarms = self_test(audited(task, n_users=2000), seed=1, scenarios=some)

    assert [row.sentence for alarm in alarms for row in alarm.failed_before] == []
    assert [a.scenario.name for a in alarms if a.applies and not a.detected] == []
