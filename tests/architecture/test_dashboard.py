"""The Grafana dashboard queries existing metrics, and its provisioning finds it."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.scrapes import DEFINITIONS
from tests.support.tables import table
from tests.support.tools import output_of

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_GRAFANA: Final = _DEPLOY / "grafana"
_DASHBOARD: Final[dict[str, Any]] = json.loads(
    (_GRAFANA / "dashboard.json").read_text(encoding="utf-8")
)
_PANELS: Final = [panel for panel in _DASHBOARD["panels"] if panel["type"] != "row"]
_QUERIES: Final = [target["expr"] for panel in _PANELS for target in panel["targets"]]
_PROMETHEUS_OWN: Final = {"up", "ALERTS"}
_METRICS: Final = {
    metric.name: metric
    for party in ("analyzer", "shuffler", "issuer")
    for metric in DEFINITIONS[party]
}


def _yaml(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@table("query", _QUERIES)
def test_a_panel_queries_metrics_that_a_service_defines(query: str) -> None:
    """A misspelt name would be an empty panel; every query filters by job and instance."""
    named = re.findall(r"\b(\w+)\{([^}]*)\}", query)

    assert named
    for name, matchers in named:
        assert name in _PROMETHEUS_OWN | _METRICS.keys()
        assert 'job="shuffledp", instance=~"$instance"' in matchers
        assert name in _PROMETHEUS_OWN or _METRICS[name].is_counter == (
            f"increase({name}" in query or f"rate({name}" in query or "sentinels_missing" in name
        )


@table("panel", _PANELS)
def test_a_legend_uses_labels_of_its_metric(panel: dict[str, Any]) -> None:
    """A misspelt label would be an empty legend."""
    for target in panel["targets"]:
        [name, *_] = re.findall(r"\b(\w+)\{", target["expr"])
        known = {"instance", *(_METRICS[name].labels if name in _METRICS else ())}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known


def test_every_metric_of_a_server_is_shown() -> None:
    """Except totals that a panel shows otherwise, and what every device has too."""
    shown = {name for query in _QUERIES for name in re.findall(r"\b(\w+)\{", query)}

    assert {
        "shuffledp_up",  # the version; `up` is shown
        "shuffledp_batches_moved_total",  # batches by state
        "shuffledp_reports_received_total",  # a share in an alert
        "shuffledp_layers_discarded_total",  # in the analyzer's refused reports
        "shuffledp_oldest_cosignature_seconds",  # an alert, after a day
    } == _METRICS.keys() - shown


def test_prometheus_can_parse_every_query(tmp_path: Path) -> None:
    """Each is a valid rule."""
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(_QUERIES)]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")

    assert "SUCCESS" in output_of("promtool", "check", "rules", str(file))


def test_panels_have_a_place_of_their_own_and_say_what_they_show() -> None:
    """No two overlap; each has a title, a description and the provisioned data source."""
    [source] = _yaml(_GRAFANA / "provisioning" / "datasources" / "prometheus.yaml")["datasources"]
    for one, other in combinations(_DASHBOARD["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert one["id"] != other["id"]
    for panel in _PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        uses = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(use == {"type": source["type"], "uid": source["uid"]} for use in uses)


def test_grafana_is_given_the_dashboard_where_it_looks() -> None:
    """The compose file mounts both where provisioning names them."""
    [provider] = _yaml(_GRAFANA / "provisioning" / "dashboards" / "shuffledp.yaml")["providers"]
    service = _yaml(_GRAFANA / "compose.yaml")["services"]["grafana"]
    mounts = dict(volume.removesuffix(":ro").split(":") for volume in service["volumes"])

    assert {
        "./grafana/provisioning": "/etc/grafana/provisioning",
        "./grafana/dashboard.json": f"{provider['options']['path']}/dashboard.json",
    } == mounts
    assert all((_DEPLOY / path).exists() for path in mounts)
    assert ["127.0.0.1:3000:3000"] == service["ports"]
