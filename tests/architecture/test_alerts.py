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


def test_the_rules_are_valid_and_every_case_of_them_holds() -> None:
    """To Prometheus's own tool: alerts_test.yaml states which alert fires when, with its labels."""
    assert f"{len(_rules())} rules found" in _promtool("check", "rules", "alerts.yaml")
    assert "SUCCESS" in _promtool("check", "config", "prometheus.yaml")
    assert "SUCCESS" in _promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_is_seen_firing_and_not_firing() -> None:
    """One without the other could be an alert that always fires, or never."""
    fires: set[str] = set()
    rests: set[str] = set()
    for case in _read("alerts_test.yaml")["tests"]:
        for alert in case["alert_rule_test"]:
            (fires if alert["exp_alerts"] else rests).add(alert["alertname"])

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


def test_every_alert_has_a_severity_and_a_row_on_the_page() -> None:
    """In the section that its runbook names; the page explains no alert that there is not."""
    page = (_ROOT / "docs" / "operators" / "running.md").read_text(encoding="utf-8")
    section = page.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]

    assert sorted(_rules()) == sorted(re.findall(r"`(\w+)`", " ".join(rows)))
    for alert in _rules().values():
        assert "docs/operators/running.md#alerts" == alert["annotations"]["runbook"]
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "action"} <= set(alert["annotations"])
