"""The alert rules: each is seen firing and not firing, of metrics that there are, and explained."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from common.runtime.metrics import DEFINITIONS
from tests.support.tools import tool

_ROOT: Final = Path(__file__).parents[2]
_FOLDER: Final = _ROOT / "deploy" / "prometheus"
_WANTED: Final = {
    *("ServiceDown", "BatchExpired", "BatchQuarantined", "DeliveryStalled", "BatchStuck"),
    *("ManySubmissionsRefused", "ManyReportsRefused", "SentinelsMissing", "ReleaseFailing"),
    *("BudgetNearlySpent", "CertificateEndsSoon", "CertificateEndsVerySoon", "DiskNearlyFull"),
    *("StorageFailing", "Overloaded", "MemoryHigh"),
}
_PROMETHEUS_OWN: Final = {"up"}


def _read(name: str) -> Any:
    return yaml.safe_load((_FOLDER / name).read_text(encoding="utf-8"))


def _rules() -> dict[str, dict[str, Any]]:
    return {
        rule["alert"]: rule for group in _read("alerts.yaml")["groups"] for rule in group["rules"]
    }


def _promtool(*arguments: str) -> str:
    outcome = subprocess.run(
        [tool("promtool"), *arguments], cwd=_FOLDER, capture_output=True, text=True, check=False
    )
    said = outcome.stdout + outcome.stderr
    assert outcome.returncode == 0, said
    return said


def test_the_rules_and_the_configuration_are_valid() -> None:
    """To Prometheus's own tool."""
    assert f"{len(_rules())} rules found" in _promtool("check", "rules", "alerts.yaml")
    assert "SUCCESS" in _promtool("check", "config", "prometheus.yaml")


def test_every_case_of_the_alerts_holds() -> None:
    """As alerts_test.yaml says: which fires when, with which labels and sentences."""
    assert "SUCCESS" in _promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_is_seen_firing_and_not_firing() -> None:
    """One without the other could be an alert that always fires, or never."""
    fires: set[str] = set()
    rests: set[str] = set()
    for case in _read("alerts_test.yaml")["tests"]:
        for alert in case["alert_rule_test"]:
            (fires if alert["exp_alerts"] else rests).add(alert["alertname"])

    assert _WANTED == set(_rules())
    assert set(_rules()) == fires == rests


@pytest.mark.parametrize("alert", _rules().values(), ids=lambda alert: alert["alert"])
def test_an_alert_asks_for_metrics_that_there_are(alert: dict[str, Any]) -> None:
    """Of names and label values that the table has: a misspelt one would never fire."""
    selected = re.findall(r"\b(shuffledp_\w+|up)\b(?:\{([^}]*)\})?", alert["expr"])

    assert selected
    for name, matchers in selected:
        if name in _PROMETHEUS_OWN:
            continue
        found = [one for each in DEFINITIONS.values() for one in each if one.name == name]
        assert found, name
        for label, texts in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
            known = {text for metric in found for text in metric.labels[label]}
            assert set(texts.split("|")) <= known


@pytest.mark.parametrize("alert", _rules().values(), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_it_means_and_what_to_do(alert: dict[str, Any]) -> None:
    """In sentences, with a severity, and where to read more: a heading, and a row, of that page."""
    notes = alert["annotations"]
    page, _, heading = notes["runbook"].partition("#")
    text = (_ROOT / page).read_text(encoding="utf-8")
    _, _, section = text.partition(f"\n## {heading.capitalize()}\n")

    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert notes["summary"].endswith(".")
    assert notes["action"].endswith(".")
    assert alert["alert"] in _explained(section.partition("\n## ")[0])


def _explained(section: str) -> list[str]:
    """Return the alerts that the first cells of a table name."""
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]


def test_the_page_explains_no_alert_that_there_is_not() -> None:
    """A row for each, and no more."""
    text = (_ROOT / "docs" / "operators" / "running.md").read_text(encoding="utf-8")
    section = text.partition("\n## Alerts\n")[2].partition("\n## ")[0]

    assert sorted(_rules()) == sorted(_explained(section))
