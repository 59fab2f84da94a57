"""The audit of texts, numbers and pairs: what it plays, what it finds, and what it leaves out."""

import math
from typing import Final

import numpy as np
import pytest

from common.accounting.anonymity_set import Crowd
from common.accounting.clones import CloneReduction
from common.mechanisms.numeric.number import number_spec
from common.task.task import Task
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.code.value_claims import clones_by_hand
from deploy.audit.code.value_reports import law_of_one, numbers_of
from deploy.audit.faults.value_rules import VALUE_RULES
from deploy.audit.faults.values import VALUES
from deploy.audit.laws.kind_panel import asked_again, kind_panel
from deploy.audit.laws.kind_values import usual_values, worst_values
from deploy.audit.laws.value_laws import answer_law, corner_law
from deploy.audit.report_json import as_json
from deploy.audit.run import audit, faults_for, rehearse, scenarios_named
from tests.support.audits import audited, played
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task

_OF_KINDS: Final = ("kinds", "kind-estimates", "kind-devices", "kind-claims")


@pytest.mark.parametrize("name", ["kind-devices", "kind-claims"])
def test_the_code_as_it_is_passes(name: str) -> None:
    """Nothing of these two could fail by chance; the others' rows do with 5e-8 a test at most."""
    [scenario] = scenarios_named([name])
    rows = played(scenario, audited())

    assert rows
    assert all(row.passed for row in rows), [row.sentence for row in rows]


@pytest.mark.slow
def test_the_code_as_it_is_passes_its_games_and_estimates() -> None:
    """Some 120 decisions, each of which errs with 5e-8 at most: seed 1."""
    report = audit(audited(), seed=1, scenarios=scenarios_named(_OF_KINDS), processes=1)

    assert report.passed, [row.sentence for row in report.failed]
    assert 50 < report.tests < 200


@pytest.mark.slow
@pytest.mark.parametrize("protocol", OF_OTHER_KINDS)
def test_every_protocol_of_another_kind_is_audited(protocol: str) -> None:
    """What is for items alone is named and not played, and nothing else fails."""
    some = [scenario for scenario in SCENARIOS if scenario.name != "services"]
    subject = audited(kind_task(protocol))
    report = audit(subject, seed=1, scenarios=some, processes=1)

    assert report.passed, [row.sentence for row in report.failed]
    assert "colluders" in report.other_kinds
    assert not set(_OF_KINDS) & set(report.other_kinds)
    assert subject.task.kind == as_json(report)["kind"]


def test_what_is_for_items_is_named_and_not_played() -> None:
    """And its faults are not planted."""
    chosen = scenarios_named(["linking", "kind-devices"])
    subject = audited(kind_task("duchi"))
    report = audit(subject, seed=1, scenarios=chosen, processes=1)

    assert ("linking",) == report.other_kinds
    assert ["linking"] == as_json(report)["other_kinds"]
    assert () == report.idle
    assert report.passed
    assert {"kind-devices"} == {fault.scenario for fault in faults_for(subject, chosen)}


def test_texts_that_are_asked_for_again_are_audited() -> None:
    """Their permanent responses come again, and nothing is amplified."""
    subject = audited(asked_again(kind_task("rappor")))
    chosen = scenarios_named(["kind-devices", "kind-claims"])
    report = audit(subject, seed=1, scenarios=chosen, processes=1)

    assert report.passed, [row.sentence for row in report.failed]


@pytest.mark.parametrize(
    "name",
    [
        "repeated-number",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("cohort-of-the-text", "clones-of-2023")
        ),
    ],
)
def test_some_faults_are_found_by_their_check(name: str) -> None:
    """All of them in the long suite."""
    [fault] = [fault for fault in (*VALUES, *VALUE_RULES) if fault.name == name]
    [rehearsed] = rehearse(audited(), seed=1, faults=[fault], processes=1)

    assert rehearsed.caught, rehearsed.said


def test_every_check_of_kinds_has_a_fault() -> None:
    """Each scenario is the one that must see some."""
    assert set(_OF_KINDS) == {fault.scenario for fault in (*VALUES, *VALUE_RULES)}


def test_the_panel_has_every_protocol_of_another_kind() -> None:
    """One task at least, with values that it asks for."""
    assert set(OF_OTHER_KINDS) == {task.protocol for task in kind_panel()}
    assert all(2 == len(usual_values(task)) for task in kind_panel())
    assert all(worst_values(task) for task in kind_panel())


@pytest.mark.parametrize("task", kind_panel(), ids=lambda task: task.protocol)
def test_laws_of_numbers_are_laws_and_right_on_average(task: Task) -> None:
    """Written from the papers, they add to 1 and mean the person's own number."""
    if task.kind not in {"mean", "vector"}:
        return
    spec, numbers = number_spec(task), numbers_of(task, usual_values(task)[0])
    variance, _ = law_of_one(task, numbers)
    assert (variance > 0).all()
    if task.mechanism.name == "mean-est":
        law, scale = corner_law(spec, numbers)
        up = [(np.arange(len(law)) >> place) % 2 for place in range(len(numbers))]
        assert 1 == pytest.approx(law.sum())
        assert numbers == pytest.approx([scale * float(law @ (2 * bits - 1)) for bits in up])
        return
    for number in numbers:
        answer = answer_law(spec, number)
        assert 1 == pytest.approx(answer.chances.sum())
        assert number == pytest.approx(answer.mean, abs=1e-9)


def test_clones_by_hand_are_those_of_the_closed_form() -> None:
    """A user alone has randomized response's δ; with others it falls, as the accountant's does."""
    alone = (math.exp(2) - math.e) / (math.exp(2) + 1)
    assert alone == pytest.approx(clones_by_hand(2.0, 1, 1.0))
    odds = math.exp(2)
    upper = CloneReduction.of_2021_with_a_coin(odds, odds).delta(Crowd(users=300), 0.7)
    assert upper == pytest.approx(clones_by_hand(2.0, 300, 0.7), rel=1e-3)


def test_every_scenario_is_for_items() -> None:
    """Other kinds are left out by name; items never are."""
    assert all("categorical" in scenario.kinds for scenario in SCENARIOS)
    assert all(len(scenario.kinds) in {1, 5} for scenario in SCENARIOS)
