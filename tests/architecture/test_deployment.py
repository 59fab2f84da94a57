"""Locks, images, the compose file and alert rules agree with each other and the code."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from packaging.requirements import Requirement

from analyzer.settings import AnalyzerSettings
from common.runtime.metrics import DEFINITIONS
from common.runtime.settings import ServiceSettings, load
from deploy.docker.__main__ import DEFAULT_BASE
from deploy.docker.engine import IMAGES
from shuffler.settings import ShufflerSettings
from tests.support.tools import tool
from user_agent.settings import UserAgentSettings

_ROOT: Final = Path(__file__).parents[2]
_SETTINGS: Final[dict[str, type[ServiceSettings]]] = {
    "analyzer": AnalyzerSettings,
    "shuffler": ShufflerSettings,
    "user_agent": UserAgentSettings,
}


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((_ROOT / name).read_text(encoding="utf-8"))


def _yaml(name: str) -> Any:
    return yaml.safe_load((_ROOT / "deploy" / name).read_text(encoding="utf-8"))


_COMPOSE: Final[dict[str, Any]] = _yaml("compose.yaml")
_CONTAINERS: Final[dict[str, dict[str, Any]]] = _COMPOSE["services"]


def _pins(file: str) -> dict[str, frozenset[str]]:
    """Return each pin of a lock with its hashes, without markers, which differ."""
    lines = (_ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pins = [line.split(" --hash=") for line in lines if line.strip()]
    assert all(len(hashes) > 0 for _, *hashes in pins)
    return {
        pin.partition(";")[0].strip(): frozenset(map(str.strip, hashes)) for pin, *hashes in pins
    }


@pytest.mark.parametrize("image", IMAGES)
def test_an_images_lock_is_part_of_the_whole_lock(image: str) -> None:
    """Image and project pin the same versions and hashes, so that images run what is tested."""
    whole, part = _pins("requirements.lock"), _pins(f"deploy/docker/{image}.lock")

    assert part
    assert part == {pin: whole.get(pin) for pin in part}


@pytest.mark.parametrize("party", _SETTINGS)
def test_a_partys_lock_pins_what_its_group_names(party: str) -> None:
    """Every package of a group is in its lock, and among the project's dependencies."""
    project = _toml("pyproject.toml")
    groups = project["dependency-groups"]
    named: set[str] = set()
    for entry in groups[party]:
        named |= set(groups[entry["include-group"]]) if isinstance(entry, dict) else {entry}
    locked = _pins(f"deploy/docker/{party}.lock")

    assert named <= {pin.partition("==")[0] for pin in locked}
    assert named <= {Requirement(one).name for one in project["project"]["dependencies"]}
    if party == "shuffler":
        assert not {"scipy", "dp-accounting"} & {pin.partition("==")[0] for pin in locked}


def test_the_compose_file_is_valid() -> None:
    """It follows the Compose specification, which both generations of the program read."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    outcome = subprocess.run(
        [*command, "deploy/compose.yaml"], cwd=_ROOT, capture_output=True, text=True, check=False
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_user_agent_and_analyzer_share_no_network() -> None:
    """Only the shuffler joins networks of both; every network is internal."""
    services = {name: set(one.get("networks", ())) for name, one in _CONTAINERS.items()}

    assert {"edge", "core", "operation", "metrics-analyzer", "metrics-shuffler"} == set(
        _COMPOSE["networks"]
    )
    assert all(network == {"internal": True} for network in _COMPOSE["networks"].values())
    assert {"edge"} == services["user_agent"]
    assert "edge" not in services["analyzer"]
    assert ["shuffler"] == [
        name
        for name, networks in services.items()
        if networks & services["user_agent"] and networks & services["analyzer"]
    ]


@pytest.mark.parametrize("name", _CONTAINERS)
def test_every_container_is_hardened(name: str) -> None:
    """Only the preparation of certificates runs as root, and no preparation has a network."""
    service = _CONTAINERS[name]

    assert {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "sysctls": {
            "net.ipv4.ip_forward": "0",
            "net.ipv4.conf.all.arp_ignore": "1",
            "net.ipv4.conf.all.arp_announce": "2",
        },
        "restart": "unless-stopped" if name in _SETTINGS else "no",
    }.items() <= service.items()
    assert {"mem_limit", "pids_limit", "cpus", "stop_grace_period"} <= service.keys()
    assert "ports" not in service
    assert ("user" in service or "cap_add" in service) == (name == "prepare_certificates")
    assert ("none" == service.get("network_mode")) == name.startswith("prepare_")


def test_a_partys_preparation_sees_only_its_own_files() -> None:
    """A link in its volume cannot lead to another party's secrets."""
    secrets = "${SHUFFLEDP_SECRETS:-./secrets}"
    mounted = {
        name.removeprefix("prepare_"): set(service["volumes"])
        for name, service in _CONTAINERS.items()
        if name.startswith("prepare_")
    }

    assert {
        "certificates": {f"{secrets}:/secrets"},
        "analyzer": {f"{secrets}/analyzer:/secrets", "analyzer-state:/var/lib/shuffledp"},
        "shuffler": {f"{secrets}/shuffler:/secrets", "shuffler-state:/var/lib/shuffledp"},
    } == mounted


@pytest.mark.parametrize("party", _SETTINGS)
def test_the_settings_of_containers_are_valid(party: str) -> None:
    """The settings file and compose's environment load, and name the mounted secrets."""
    service, file = _CONTAINERS[party], _ROOT / "deploy" / "settings" / f"{party}.toml"
    environment = dict.fromkeys(service.get("environment", {}), "00" * 32)
    settings = load(_SETTINGS[party], file, environment, f"SHUFFLEDP_{party.upper()}")

    secrets = {one["target"] for one in service["secrets"]}
    paths = (settings.tls_certificate, settings.tls_key, settings.tls_authority)
    named = {path for path in (*paths, getattr(settings, "state_key", None)) if path}
    assert {Path("/run/secrets") / one for one in secrets} == named
    assert Path("/var/lib/shuffledp/state") == settings.state_directory


def test_a_persons_device_is_not_measured() -> None:
    """Only the analyzer and shuffler serve metrics and are scraped."""
    [asked] = _yaml("prometheus/prometheus.yaml")["scrape_configs"]
    files = {party: _toml(f"deploy/settings/{party}.toml") for party in _SETTINGS}

    assert [["analyzer:9464", "shuffler:9464"]] == [
        one["targets"] for one in asked["static_configs"]
    ]
    assert ["analyzer", "shuffler"] == [n for n, file in files.items() if "metrics_listen" in file]


def test_an_image_copies_only_its_partys_folders() -> None:
    """A party's image holds protos, common and its own folder, and does not run as root."""
    text = (_ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert [DEFAULT_BASE] == re.findall(r"(?m)^ARG BASE=(.*)$", text)
    assert [len(IMAGES), 3] == [text.count(f"\n{line} ") for line in ("USER", "HEALTHCHECK")]
    assert {"10001:10001"} == set(re.findall(r"(?m)^USER (.*)$", text))
    for party in _SETTINGS:
        [stage] = re.findall(
            rf"^FROM party AS {party}\n(.*?)(?=^FROM|\Z)", text, re.DOTALL | re.MULTILINE
        )
        copied = re.findall(r"^COPY --from=code (\S+)", stage, re.MULTILINE)
        assert {"/app/protos", "/app/common", f"/app/{party}"} == set(copied)


def test_a_build_context_excludes_secrets() -> None:
    """.dockerignore is an allow-list, and excludes keys and tokens."""
    lines = (_ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]

    assert "*" == rules[0]
    assert {"deploy/secrets", "deploy/.env", "**/*.key", "**/*.pem", "**/*.token"} <= set(rules)


_PROMETHEUS_OWN: Final = {"up"}


def _rules() -> dict[str, dict[str, Any]]:
    return {
        rule["alert"]: rule
        for group in _yaml("prometheus/alerts.yaml")["groups"]
        for rule in group["rules"]
    }


def _promtool(*arguments: str) -> str:
    folder = _ROOT / "deploy" / "prometheus"
    outcome = subprocess.run(
        [tool("promtool"), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    said = outcome.stdout + outcome.stderr
    assert outcome.returncode == 0, said
    return said


def test_the_alert_rules_are_valid_and_pass_their_tests() -> None:
    """Prometheus accepts them; alerts_test.yaml states when each alert fires, with its labels."""
    assert f"{len(_rules())} rules found" in _promtool("check", "rules", "alerts.yaml")
    assert "SUCCESS" in _promtool("check", "config", "prometheus.yaml")
    assert "SUCCESS" in _promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_is_tested_firing_and_not_firing() -> None:
    """An alert that is tested only one way could fire always, or never."""
    fires: set[str] = set()
    rests: set[str] = set()
    for case in _yaml("prometheus/alerts_test.yaml")["tests"]:
        for alert in case["alert_rule_test"]:
            (fires if alert["exp_alerts"] else rests).add(alert["alertname"])

    assert set(_rules()) == fires == rests


@pytest.mark.parametrize("alert", _rules().values(), ids=lambda alert: alert["alert"])
def test_an_alert_uses_existing_metrics(alert: dict[str, Any]) -> None:
    """A misspelt name or label value would never fire."""
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
    """The section that every runbook names has one row for each alert."""
    page = (_ROOT / "docs" / "operators" / "running.md").read_text(encoding="utf-8")
    section = page.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]

    assert sorted(_rules()) == sorted(re.findall(r"`(\w+)`", " ".join(rows)))
    for alert in _rules().values():
        assert "docs/operators/running.md#alerts" == alert["annotations"]["runbook"]
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "action"} <= set(alert["annotations"])
