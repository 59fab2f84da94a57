"""An audit of a mechanism that was added by the book, and that the audit does not know."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import pytest

from common import protocols
from common.mechanisms import registry
from common.protocols import MechanismName, Protocol
from deploy.audit.harness.tasks import sample_task
from deploy.audit.report.audit_page import audit_page
from deploy.audit.runner import AuditRun, scenarios_named
from examples.subset_selection import SubsetSelection
from tests.support.audits import audited

_NAME: Final = "subset-selection"
_ROW: Final[Any] = Protocol("subset", _NAME, dummy_distributions=("fixed",))  # type: ignore[arg-type]  # no name of the project
_TABLES: Final[tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...]] = (
    ("common.protocols.PROTOCOLS", protocols.PROTOCOLS, {"subset": _ROW}),
    *(
        (f"{module}.ITEM_MECHANISMS", registry.ITEM_MECHANISMS, {_NAME: SubsetSelection})
        for module in ("common.mechanisms.registry", "analyzer.task_builder")
    ),
)
_NOT_COVERED: Final = {"shuffler+analyzer", "rounds", "randomizer", "devices", "maximal-gain"}
"""Scenarios that need a reference for the mechanism."""
_COVERED: Final = ("n-1", "partition", "draws", "linking")


@pytest.fixture
def subset_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the example mechanism, and a protocol with it."""
    for module in ("common.protocols", "common.task.specs"):
        named = Literal[MechanismName, "subset-selection"]
        monkeypatch.setattr(f"{module}.MechanismName", named)
    for name, table, more in _TABLES:
        monkeypatch.setattr(name, {**table, **more})


@pytest.mark.usefixtures("subset_selection")
def test_what_needs_a_reference_is_not_covered_and_the_rest_passes() -> None:
    """No check takes the mechanism for another one; the page and the self-test say so."""
    task = sample_task(
        protocol="subset",
        domain_size=6,
        local_epsilon=1.5,
        dummies_per_user=1,
        n_min=100,
        target_size=100,
    )
    scenarios = scenarios_named([*_NOT_COVERED, *_COVERED])
    subject = audited(task, n_users=100, games=20_000, batches=20_000, reports=20_000)
    run = AuditRun(subject=subject, seed=1, scenarios=scenarios, processes=1)
    report = run.audit()

    assert [] == [row.sentence for row in report.failed]
    assert _NOT_COVERED == {row.scenario for row in report.findings if row.verdict == "not covered"}
    assert ("linking",) == report.idle  # its reports have no seed
    assert "The audit has no reference for the task" in audit_page(report)
    [result] = replace(run, scenarios=scenarios_named(["randomizer"])).self_test()
    assert (False, True) == (result.applies, result.passed)
