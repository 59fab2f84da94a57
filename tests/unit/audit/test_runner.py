"""Complete runs: seeds, processes, failures, and the self-test."""

import dataclasses
import json
from typing import Any, Literal, NoReturn

import numpy as np
import pytest

from examples.subset_selection import SubsetSelection
from examples.subset_selection_audit import FAMILIES as SUBSET_FAMILIES
from shuffledp.analyzer.task_builder import complete
from shuffledp.audit.families.references import FAMILIES
from shuffledp.audit.finding import Rows, failed
from shuffledp.audit.harness.tasks import reduced_draft, sample_task
from shuffledp.audit.report.audit_report import as_json
from shuffledp.audit.report.report_views import audit_page
from shuffledp.audit.runner import AuditRun, run, scenarios_named
from shuffledp.audit.scenario import AuditSubject, Scenario, Weakness
from shuffledp.audit.scenarios import SCENARIOS
from shuffledp.common.limits import stated_rules
from shuffledp.common.mechanisms.registry import ITEM_MECHANISMS
from shuffledp.common.protocols import PROTOCOLS, MechanismName, ProtocolRow
from shuffledp.common.task.specs import MechanismSpec
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.audits import audited
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_SOME = ("linking", "puredump", "draws", "shuffler-drops")


def _figures(seed: int, *names: str, processes: int = 1) -> str:
    subject, scenarios = audited(games=20_000), scenarios_named(names)
    report = AuditRun(subject=subject, seed=seed, scenarios=scenarios, processes=processes).audit()
    assert report.passed
    return dumps(as_json(report)["findings"])


@pytest.mark.slow
def test_a_seed_gives_the_same_figures_in_every_selection_of_scenarios() -> None:
    """Alone, with other scenarios, and in spawned processes; another seed gives other figures."""
    first = _figures(3, *_SOME)

    assert first == _figures(3, *_SOME, processes=2)
    assert _figures(3, "linking") == dumps([json.loads(first)[0]])
    assert first != _figures(4, *_SOME)


def _fails(_: AuditSubject, __: np.random.Generator) -> Rows:
    raise RuntimeError("the value 1234567 is not there")


def _raise(*_: Any) -> NoReturn:
    raise RuntimeError


def test_code_that_raises_is_a_failed_finding_without_values() -> None:
    """A scenario that cannot run has neither passed nor detected its weakness."""
    broken = Weakness("Its code raises an error.", local_guarantee=_raise)
    scenario = Scenario(name="fails", title="It fails", check=_fails, weakness=broken)
    [row] = run(scenario, audited(), 1)
    weak = dataclasses.replace(scenario, check=SCENARIOS[0].check)
    [result] = AuditRun(
        subject=audited(games=20_000), seed=1, scenarios=[weak], processes=1
    ).self_test()

    assert (row.verdict, row.passed) == ("error", False)
    assert "RuntimeError in test_runner.py" in row.sentence
    assert "1234567" not in dumps(dataclasses.asdict(row))
    assert (True, False, False) == (result.applies, result.detected, result.passed)


@pytest.mark.parametrize("protocol", ITEM_PROTOCOLS)
def test_a_reduced_task_keeps_the_mechanism_weights_and_distributions(protocol: str) -> None:
    """Only the batch is smaller."""
    task = protocol_task(protocol)
    draft = reduced_draft(task, most_reports=2500, n_users=(16, 64, 256))
    assert draft is not None
    small = complete(draft, analyzer_key=task.analyzer_key, nonce=task.nonce)

    assert (task.protocol, task.mechanism.name) == (small.protocol, small.mechanism.name)
    assert type(task.dummies) is type(small.dummies)
    assert list(map(type, task.shuffler.noises)) == list(map(type, small.shuffler.noises))
    assert task.item_mechanism.true_weight == small.item_mechanism.true_weight
    assert (task.suite, True) == (small.suite, small.n_min <= 256)


def test_scenarios_for_other_kinds_are_named_and_not_run() -> None:
    """Skipped scenarios and those without findings are reported."""
    subject, chosen = audited(kind_task("duchi")), scenarios_named(["linking", "draws"])
    report = AuditRun(subject=subject, seed=1, scenarios=chosen, processes=1).audit()

    assert report.other_kinds == ("linking",)
    assert report.idle == ("draws",)


def _with_subset_selection(patch: pytest.MonkeyPatch) -> AuditRun:
    """Add subset selection by the book, but for its reference, and audit a small task."""
    name: Any = "subset-selection"
    row = ProtocolRow("subset", name, dummy_distributions=("fixed",))
    patch.setattr("shuffledp.common.protocols.PROTOCOLS", {**PROTOCOLS, "subset": row})
    widened = Literal[MechanismName, "subset-selection"]
    patch.setattr("shuffledp.common.protocols.MechanismName", widened)
    patch.setitem(MechanismSpec.__annotations__, "name", widened)
    patch.setattr("shuffledp.common.limits.stated_rules", stated_rules.__wrapped__)
    mechanisms = {**ITEM_MECHANISMS, name: SubsetSelection}
    for module in ("shuffledp.common.mechanisms.registry", "shuffledp.analyzer.task_builder"):
        patch.setattr(f"{module}.ITEM_MECHANISMS", mechanisms)
    sizes = {"domain_size": 6, "dummies_per_user": 1, "n_min": 100, "target_size": 100}
    task = sample_task(protocol="subset", local_epsilon=1.5, **sizes)
    subject = audited(task, n_users=100, games=20_000, batches=20_000, reports=20_000)
    chosen = scenarios_named([*_OF_SUBSETS, "n-1", "partition", "draws", "linking"])
    return AuditRun(subject=subject, seed=1, scenarios=chosen, processes=1)


_OF_OTHER_CODE = {
    *("services", "flood", "orders", "honest-shuffler", "reused-seeds", "puredump"),
    *(each.name for each in SCENARIOS if each.name.startswith("shuffler-")),
}
"""Scenarios of other mechanisms, and of the parties around any mechanism."""
_OF_SUBSETS = ("shuffler+analyzer", "rounds", "randomizer", "devices", "maximal-gain")


def test_a_mechanism_without_a_reference_is_not_taken_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Page and self-test name what needs a reference for it; all other scenarios pass."""
    whole = _with_subset_selection(monkeypatch)
    report = whole.audit()

    assert [] == [finding.sentence for finding in report.failed]
    left_out = {one.scenario for one in report.findings if one.verdict == "not covered"}
    assert ({*_OF_SUBSETS}, ("linking",)) == (left_out, report.idle)
    assert "The audit has no reference for the task" in audit_page(report)
    [result] = dataclasses.replace(whole, scenarios=scenarios_named(["randomizer"])).self_test()
    assert (False, True) == (result.applies, result.passed)


def test_a_mechanism_added_by_the_book_passes_the_audit_and_its_self_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the one file of its family, every scenario covers it, and detects its weakness."""
    monkeypatch.setattr(
        "shuffledp.audit.families.references.FAMILIES", {**FAMILIES, **SUBSET_FAMILIES}
    )
    small = _with_subset_selection(monkeypatch)
    scenarios = [each for each in SCENARIOS if each.name not in _OF_OTHER_CODE]
    results = dataclasses.replace(small, scenarios=scenarios).self_test()

    assert [] == [row.sentence for result in results for row in failed(result.honest)]
    assert all(row.verdict != "not covered" for result in results for row in result.honest)
    undetected = {result.scenario.name for result in results if not result.detected}
    assert {"linking", "negative-reports"} == undetected


@pytest.mark.slow
def test_every_weakness_is_detected() -> None:
    """On a task to which every weakness applies but that of `signed`, which has its own test."""
    subject = audited(batches=800_000, reports=400_000, devices=4_000, users=300)
    results = AuditRun(subject=subject, seed=1).self_test()

    assert [result.scenario.name for result in results if not result.detected] == [
        "negative-reports"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [*ITEM_PROTOCOLS, *OF_OTHER_KINDS])
def test_every_protocol_passes_its_audit_and_its_self_test(protocol: str) -> None:
    """Except for the running services, for which one run is enough."""
    task = (kind_task if protocol in OF_OTHER_KINDS else protocol_task)(protocol)
    scenarios = [scenario for scenario in SCENARIOS if scenario.name != "services"]
    subject = audited(task, n_users=2000)
    results = AuditRun(subject=subject, seed=1, scenarios=scenarios).self_test()

    assert [row.sentence for result in results for row in failed(result.honest)] == []
    assert [result.scenario.name for result in results if not result.passed] == []
