"""Locks, images, the compose file and alert rules agree with each other and the code."""

import re
import subprocess
import sys
import tomllib
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from packaging.requirements import Requirement

from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.runtime.settings import HttpSettings, KeyHolderSettings, ServiceSettings, load
from shuffledp.deploy.docker.__main__ import DEFAULT_BASE
from shuffledp.deploy.docker.bill_of_materials import pins
from shuffledp.deploy.docker.deployment import IMAGES, SCALE_IMAGES, VARIANTS
from shuffledp.deploy.docker.preparation import ROLES, WITNESSES
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.publisher.settings import PublisherSettings
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.user_agent.settings import UserAgentSettings
from tests.support.schemas import compose_specification, validator
from tests.support.scrapes import DEFINITIONS
from tests.support.tables import table
from tests.support.tools import output_of

_ROOT: Final = Path(__file__).parents[2]
_SETTINGS: Final[dict[str, type[ServiceSettings]]] = {
    "analyzer": AnalyzerSettings,
    "shuffler": ShufflerSettings,
    "issuer": IssuerSettings,
    "user_agent": UserAgentSettings,
    "publisher": PublisherSettings,
}


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((_ROOT / name).read_text(encoding="utf-8"))


def _yaml(name: str) -> Any:
    return yaml.safe_load((_ROOT / "deploy" / name).read_text(encoding="utf-8"))


_COMPOSE: Final[dict[str, Any]] = _yaml("compose.yaml")
_CONTAINERS: Final[dict[str, dict[str, Any]]] = _COMPOSE["services"]
_SCALE: Final[dict[str, Any]] = _yaml("compose.scale.yaml")


def _whole(service: dict[str, Any]) -> dict[str, Any]:
    """Return a service of compose.scale.yaml with what it takes from compose.yaml."""
    own = dict(service)
    base = own.pop("extends", None)
    if base is None:
        return own
    assert "compose.yaml" == base["file"]
    assert own.keys() <= {"command"}  # compose merges other keys in its own ways
    return {**_CONTAINERS[base["service"]], **own}


_SECOND: Final[dict[str, Any]] = _yaml("compose.two-shufflers.yaml")


def _merged() -> dict[str, dict[str, Any]]:
    """Return the services of compose.yaml and compose.two-shufflers.yaml, merged as by compose."""
    services = {name: dict(service) for name, service in _CONTAINERS.items()}
    for name, given in _SECOND["services"].items():
        base, own = given.get("extends"), {k: v for k, v in given.items() if k != "extends"}
        if base is not None:  # volumes with the same targets replace the base's
            assert {"file": "compose.yaml", "service": "prepare_analyzer"} == base
            targets = [
                {each.removesuffix(":ro").rpartition(":")[2] for each in one["volumes"]}
                for one in (own, _CONTAINERS[base["service"]])
            ]
            assert ({"volumes"}, targets[0]) == ({*own}, targets[1])
            services[name] = {**_CONTAINERS[base["service"]], **own}
        elif name in services:
            assert own.keys() <= {"command", "environment", "networks"}
            for key, value in own.items():
                known = services[name].get(key, {})
                services[name][key] = value if key == "command" else {**known, **value}
        else:
            services[name] = own
    return services


_TWO: Final = _merged()
_SCALED: Final = {name: _whole(service) for name, service in _SCALE["services"].items()}
_FRONT_ENDS: Final = ["front-end-1", "front-end-2", "front-end-3"]
_INSIDES: Final = {
    "analyzer": ["analyzer-scheduler", "analyzer-worker-1", "analyzer-worker-2"],
    "shuffler": [
        *_FRONT_ENDS,
        "postgres",
        "shuffler-scheduler",
        "shuffler-worker-1",
        "shuffler-worker-2",
    ],
}
"""Services of a party that other parties must not reach."""


def _networks(service: dict[str, Any]) -> set[str]:
    return set(service.get("networks", ()))


@table("image", [name for name in IMAGES if name != "auditor"])
def test_an_images_lock_is_part_of_the_whole_lock(image: str) -> None:
    """Image and project pin the same versions and hashes, so that images run what is tested."""
    whole, part = pins("requirements.lock"), pins(f"deploy/docker/{image}.lock")

    assert part
    assert all(part.values())
    assert part == {pin: whole.get(pin) for pin in part}


@pytest.mark.parametrize("party", [name for name in IMAGES if name not in {"operator", "auditor"}])
def test_a_partys_lock_pins_what_its_group_names(party: str) -> None:
    """Every package of a group is in its lock, and among the project's dependencies."""
    project = _toml("pyproject.toml")
    groups = project["dependency-groups"]
    named: set[str] = set()
    for entry in groups[party]:
        named |= set(groups[entry["include-group"]]) if isinstance(entry, dict) else {entry}
    locked = pins(f"deploy/docker/{party}.lock")

    assert named <= {pin.partition("==")[0] for pin in locked}
    assert named <= {Requirement(one).name for one in project["project"]["dependencies"]}
    if party in {"shuffler", "witness"}:
        assert not {"scipy", "dp-accounting"} & {pin.partition("==")[0] for pin in locked}


def test_the_compose_files_are_valid() -> None:
    """They follow the Compose specification, which both generations of the program read."""
    for file in (_COMPOSE, _SCALE, _SECOND, _yaml("grafana/compose.yaml")):
        compose_specification().validate(file)


def _check_closed(networks: dict[str, Any]) -> None:
    """Check that no network leads outside; those with published ports translate no address."""
    untranslated = {"com.docker.network.bridge.enable_ip_masquerade": "false"}
    for name, network in networks.items():
        web = name.startswith("web-")
        assert network == ({"driver_opts": untranslated} if web else {"internal": True})


_MEETING: Final = {
    ("analyzer", "issuer"): {"witnessing"},
    ("analyzer", "operator"): {"operation"},
    ("analyzer", "shuffler"): {"core", "operation"},
    ("issuer", "loadgen"): {"tokens"},
    ("issuer", "operator"): {"issuing"},
    ("issuer", "user_agent"): {"tokens"},
    ("operator", "shuffler"): {"operation"},
}
"""Networks that two parties share in every deployment."""
_MEETING_PLAIN: Final = {
    **_MEETING,
    ("loadgen", "shuffler"): {"edge"},
    ("shuffler", "user_agent"): {"edge"},
}
_MEETING_TWO: Final = {
    **_MEETING_PLAIN,
    ("analyzer", "relay"): {"delivering"},
    ("relay", "shuffler"): {"relaying"},
}
_MEETING_SCALED: Final = {
    **_MEETING,
    ("haproxy", "user_agent"): {"edge"},
    ("haproxy", "loadgen"): {"edge"},
    ("issuer", "prometheus"): {"metrics-issuer"},
    ("analyzer", "prometheus"): {"metrics-analyzer"},
    ("prometheus", "shuffler"): {"metrics-shuffler"},
    **{(name, "prometheus"): {"metrics-shuffler"} for name in _FRONT_ENDS},
}


@pytest.mark.parametrize(
    ("networks", "services", "expected"),
    [
        (_COMPOSE["networks"], _CONTAINERS, _MEETING_PLAIN),
        (_COMPOSE["networks"] | _SECOND["networks"], _TWO, _MEETING_TWO),
        (_SCALE["networks"], _SCALED, _MEETING_SCALED),
    ],
    ids=["plain", "two", "scale"],
)
def test_parties_meet_in_few_networks(
    networks: dict[str, Any],
    services: dict[str, dict[str, Any]],
    expected: dict[tuple[str, str], set[str]],
) -> None:
    """
    User agent and analyzer share none: only shuffler and issuer join networks of both.

    A second shuffler meets its neighbours alone. Several processes of a party meet others through
    their coordinators and haproxy. Metrics, and the ports of browsers, have networks of their own.
    """
    party_of = {name: party for party, names in _INSIDES.items() for name in names}
    party_of |= {"haproxy": "shuffler", "user_agent": "person", "loadgen": "person"}
    members = {name: _networks(one) for name, one in services.items()}

    _check_closed(networks)
    assert networks.keys() == set().union(*members.values())
    assert {"metrics-analyzer", "metrics-shuffler", "metrics-issuer"} < networks.keys()
    assert expected == {
        (one, other): shared
        for one, other in combinations(sorted(members), 2)
        if party_of.get(one, one) != party_of.get(other, other)
        and (shared := members[one] & members[other])
    }


@pytest.mark.parametrize("name", [name for name in _SCALED if name in ROLES or "worker" in name])
def test_what_serves_a_partys_own_processes_listens_inside(name: str) -> None:
    """Coordinators and workers bind to a name that only an internal network resolves to them."""
    service = _SCALED[name]
    networks = service["networks"]
    if isinstance(networks, list):
        names = {name: networks[0]}
    else:
        names = {alias: one for one, has in networks.items() for alias in has.get("aliases", ())}
    arguments = [each.removeprefix("--host=") for each in service.get("command", ())]
    listen = service["environment"].get(f"SHUFFLEDP_{name.upper()}_COORDINATOR_LISTEN", arguments)
    host = listen.partition(":")[0] if isinstance(listen, str) else listen[0]

    assert names[host] in {"shuffler-inside", "shuffler-engine", "analyzer-engine"}
    assert 1 == len(networks) or host not in _SCALED


@pytest.mark.parametrize("party", ROLES)
def test_a_process_holds_its_own_internal_certificate_alone(party: str) -> None:
    """It mounts its role's folder, and parties share no volume and no secret."""
    names = [party, *_INSIDES[party]]
    mounted = {name: _sources(_SCALED[name]) for name in _SCALED}
    inside = "${SHUFFLEDP_SECRETS:-./secrets}/" + f"{party}/internal/"

    for name, sources in mounted.items():
        roles = [each.removeprefix(inside) for each in sources if each.startswith(inside)]
        environment = _SCALED[name].get("environment", {})
        role = environment.get(f"SHUFFLEDP_{party.upper()}_ROLE", name.removeprefix(f"{party}-"))
        assert roles == ([role] if name in names else [])
        assert set(roles) <= set(ROLES[party])
    own = set().union(*(mounted[name] for name in names))
    foreign = set().union(
        *(mounted[name] for name in _SCALED if name not in {*names, "operator", f"prepare_{party}"})
    )
    assert own & foreign <= {"authority"}


def _sources(service: dict[str, Any]) -> list[str]:
    """Return the sources of a service's volumes and secrets."""
    volumes = [each.removesuffix(":ro").rpartition(":")[0] for each in service.get("volumes", ())]
    return [*volumes, *(secret["source"] for secret in service.get("secrets", ()))]


@pytest.mark.parametrize(
    ("variant", "services"), [("", _CONTAINERS), ("scale", _SCALED), ("two-shufflers", _TWO)]
)
def test_a_deployment_starts_every_service_from_an_image_that_is_built(
    variant: str, services: dict[str, dict[str, Any]]
) -> None:
    """A service that no group starts would be missing; images are built, not pulled."""
    started = [name for group in VARIANTS[variant][1] for name in group]
    images = {
        one["image"].removeprefix("shuffledp-").partition(":")[0] for one in services.values()
    }
    on_demand = {name for name, one in services.items() if "profiles" in one}

    assert sorted(started) == sorted(services.keys() - on_demand)
    assert images <= {*IMAGES, *SCALE_IMAGES}


def test_a_second_shuffler_shares_no_secret() -> None:
    """Neither side mounts what is the other's; its settings name what is mounted."""
    mounted = {name: set(_sources(one)) for name, one in _TWO.items()}
    own = mounted["relay"] | mounted["prepare_relay"]
    others = set().union(
        *(has for name, has in mounted.items() if name not in {"relay", "prepare_relay"})
    )
    service = _TWO["relay"]
    file = _ROOT / "deploy" / "settings" / "relay.toml"
    relay = load(ShufflerSettings, file, _environment(service), "SHUFFLEDP_SHUFFLER")

    assert not own & others
    assert 90 == relay.key_lifetime_days  # a stolen key opens layers for more than twice as long
    for name in _SECOND["secrets"]:
        assert "/second/" in _SECOND["secrets"][name]["file"]
    assert not _COMPOSE["secrets"].keys() & _SECOND["secrets"].keys()
    named = {relay.tls_certificate, relay.tls_key, relay.tls_authority, relay.state_key}
    assert {Path("/run/secrets") / one["target"] for one in service["secrets"]} == named
    assert ("relay", Path("/var/lib/shuffledp/state")) == (relay.role, relay.state_directory)
    [alias] = service["networks"]["metrics-relay"]["aliases"]
    assert f"{alias}:9464" == relay.metrics_listen


def test_a_second_shufflers_health_is_checked_by_its_own_certificate() -> None:
    """The check knows the relay, whose certificate does not name the shuffler."""
    [_, _, *command, file] = _TWO["relay"]["healthcheck"]["test"]
    settings = _ROOT / "deploy" / "settings" / "relay.toml"
    checked = subprocess.run(
        [sys.executable, *command, str(settings)],
        cwd=_ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert f"./settings/{settings.name}:{file}:ro" in _TWO["relay"]["volumes"]
    assert (1, True) == (checked.returncode, "address: is it running?" in checked.stderr)


@pytest.mark.parametrize("party", ["shuffler", "user_agent", "publisher"])
def test_who_relies_on_a_second_shuffler_pins_it(party: str) -> None:
    """Its identity comes from the preparation; the first shuffler knows its address."""
    file = _ROOT / "deploy" / "settings" / f"{party}.toml"
    settings = load(_SETTINGS[party], file, _environment(_TWO[party]), f"SHUFFLEDP_{party.upper()}")

    assert "00" * 32 == getattr(settings, "relay_identity", None)
    if isinstance(settings, ShufflerSettings):
        listen = _toml("deploy/settings/relay.toml")["listen"]
        assert f"relay:{listen.rpartition(':')[2]}" == settings.relay


@pytest.mark.parametrize("services", [_CONTAINERS, _SCALED, _TWO], ids=["plain", "scale", "two"])
def test_every_container_is_hardened(services: dict[str, dict[str, Any]]) -> None:
    """As the schema says; extended services are complete."""
    schema = Path(__file__).with_name("compose.schema.yaml").read_text(encoding="utf-8")

    validator(yaml.safe_load(schema)).validate({"services": services})


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
        "issuer": {f"{secrets}/issuer:/secrets", "issuer-state:/var/lib/shuffledp"},
    } == mounted


def _environment(service: dict[str, Any]) -> dict[str, str]:
    """Return a service's environment, with a name's lower case in place of its value."""
    given: dict[str, str] = service.get("environment", {})
    return {
        name: re.sub(
            r"\$\{(\w+):-\}",
            lambda found: "00" * 32 if "IDENTITY" in found[1] else found[1].lower(),
            text,
        )
        for name, text in given.items()
    }


@pytest.mark.parametrize("services", [_CONTAINERS, _SCALED], ids=["plain", "scale"])
def test_analyzer_and_devices_name_the_same_witnesses(services: dict[str, dict[str, Any]]) -> None:
    """Each has an address in a network that the analyzer shares with it; devices rely on all."""
    folder = _ROOT / "deploy" / "settings"
    analyzer, device = services["analyzer"], services["user_agent"]
    environment = _environment(analyzer)
    asked = load(AnalyzerSettings, folder / "analyzer.toml", environment, "SHUFFLEDP_ANALYZER")
    environment = _environment(device)
    pinned = load(
        UserAgentSettings, folder / "user_agent.toml", environment, "SHUFFLEDP_USER_AGENT"
    )

    page = _page()
    assert ("shuffledp_shuffler_witness", "shuffledp_issuer_witness") == pinned.witnesses
    assert (0, False) == (pinned.witness_quorum, pinned.allow_unlogged_tasks)
    assert (pinned.witnesses, 0) == (page.witnesses, page.witness_quorum)
    assert [*pinned.witnesses] == [one.key for one in asked.witnesses]
    for witness, name in zip(asked.witnesses, WITNESSES, strict=True):
        listen = _toml(f"deploy/settings/{name}.toml")["listen"]
        assert f"{name}:{listen.rpartition(':')[2]}" == witness.address
        assert _networks(analyzer) & _networks(services[name])
        assert ["--witness", name] == services[f"prepare_{name}"]["command"]
    assert "command" not in services["prepare_analyzer"]


@pytest.mark.parametrize("party", _SETTINGS)
def test_the_settings_of_containers_are_valid(party: str) -> None:
    """The settings file and compose's environment load, and name the mounted secrets."""
    service, file = _CONTAINERS[party], _ROOT / "deploy" / "settings" / f"{party}.toml"
    settings = load(_SETTINGS[party], file, _environment(service), f"SHUFFLEDP_{party.upper()}")

    secrets = {one["target"] for one in service.get("secrets", ())}
    paths = (settings.tls_certificate, settings.tls_key, settings.tls_authority)
    others = (getattr(settings, key, None) for key in ("state_key", "people", "credential_file"))
    named = {path for path in (*paths, *others) if path}
    assert {Path("/run/secrets") / one for one in secrets} == named
    assert Path("/var/lib/shuffledp/state") == settings.state_directory


def _page() -> PublisherSettings:
    file, environment = "publisher.toml", _environment(_CONTAINERS["publisher"])
    folder = _ROOT / "deploy" / "settings"
    return load(PublisherSettings, folder / file, environment, "SHUFFLEDP_PUBLISHER")


def test_this_machines_browser_reaches_the_page_and_the_services_that_it_calls() -> None:
    """
    The published ports are those of the page's addresses, on loopback alone.

    Shuffler and issuer listen in their own network for them, and answer this page.
    """
    page = _page()
    urls = {"publisher": "http://127.0.0.1:7004", "shuffler": page.shuffler, "issuer": page.issuer}
    listening = {"publisher": f"0.0.0.0:{page.listen.rpartition(':')[2]}"}
    for party in ("shuffler", "issuer"):
        environment = _environment(_CONTAINERS[party])
        file = _ROOT / "deploy" / "settings" / f"{party}.toml"
        settings = load(_SETTINGS[party], file, environment, f"SHUFFLEDP_{party.upper()}")
        assert isinstance(settings, HttpSettings)
        assert ((urls["publisher"],), True) == (settings.http_origins, settings.http_plain)
        assert {"127.0.0.1"} == settings.accepted_hosts() == {*page.accepted_hosts()}
        [alias] = _CONTAINERS[party]["networks"][f"web-{party}"]["aliases"]
        listening[party] = settings.http_listen or ""
        assert alias == listening[party].partition(":")[0]

    published = {name: one["ports"] for name, one in _CONTAINERS.items() if "ports" in one}
    for party, url in urls.items():
        port = listening[party].rpartition(":")[2]
        assert f"http://127.0.0.1:{port}" == url
        assert [f"127.0.0.1:{port}:{port}"] == published.pop(party)
    assert {} == published


@table(
    ("name", "party"),
    [
        (name, party)
        for name, one in _SCALED.items()
        for party in ROLES
        if f"SHUFFLEDP_{party.upper()}_ROLE" in one.get("environment", {})
    ],
)
def test_the_settings_of_the_scale_deployment_are_valid(name: str, party: str) -> None:
    """Each process with a role loads its settings; a worker has its environment alone."""
    file = _ROOT / "deploy" / "settings" / f"{party}.toml"
    settings = load(
        _SETTINGS[party],
        None if "-worker-" in name else file,
        _environment(_SCALED[name]),
        f"SHUFFLEDP_{party.upper()}",
    )

    assert isinstance(settings, KeyHolderSettings)


def test_a_persons_device_is_not_measured() -> None:
    """Only analyzer, shuffler and issuer serve metrics and are scraped."""
    [asked] = _yaml("prometheus/prometheus.yaml")["scrape_configs"]
    [scaled] = _yaml("prometheus/prometheus.scale.yaml")["scrape_configs"]
    files = {party: _toml(f"deploy/settings/{party}.toml") for party in _SETTINGS}

    servers = ["analyzer:9464", "shuffler:9464", "issuer:9464"]
    assert [servers] == [one["targets"] for one in asked["static_configs"]]
    assert [servers, [f"{name}:9464" for name in _FRONT_ENDS]] == [
        one["targets"] for one in scaled["static_configs"]
    ]
    measured = [name for name, file in files.items() if "metrics_listen" in file]
    assert servers == [f"{name}:9464" for name in measured]


def test_an_image_copies_only_its_partys_folders() -> None:
    """A party's image holds protos, common and its own folder, and no image runs as root."""
    text = (_ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert [DEFAULT_BASE] == re.findall(r"(?m)^ARG BASE=(.*)$", text)
    parties = set(IMAGES) - {"operator", "auditor"}
    assert [len(IMAGES), len(parties)] == [
        text.count(f"\n{line} ") for line in ("USER", "HEALTHCHECK")
    ]
    assert {"10001:10001"} == set(re.findall(r"(?m)^USER (.*)$", text))
    for party in parties:
        [stage] = re.findall(
            rf"^FROM party AS {party}\n(.*?)(?=^FROM|\Z)", text, re.DOTALL | re.MULTILINE
        )
        copied = re.findall(r"^COPY --from=code /app/shuffledp/(\S+)", stage, re.MULTILINE)
        folder = party.removeprefix("checking-")
        own = {"user_agent": "user_agent/*.py"}.get(party, folder)
        if party == "publisher":
            needed = ("*.py", "crypto", "runtime", "transparency", "wire")
            page = {"__init__.py", own, "user_agent/web/dist"}
            assert page | {f"common/{part}" for part in needed} == set(copied)
        else:
            assert {"__init__.py", "protos", "common", own} == set(copied)


def test_a_build_context_excludes_secrets() -> None:
    """.dockerignore is an allow-list, and excludes keys, tokens and what npm installs."""
    lines = (_ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]

    assert "*" == rules[0]
    assert {"deploy/secrets", "deploy/.env", "**/*.key", "**/*.pem", "**/*.token"} <= set(rules)
    assert ["user_agent/web", "!user_agent/web/dist"] == [one for one in rules if "web" in one]


_PROMETHEUS_OWN: Final = {"up"}


def _rules() -> dict[str, dict[str, Any]]:
    return {
        rule["alert"]: rule
        for group in _yaml("prometheus/alerts.yaml")["groups"]
        for rule in group["rules"]
    }


def test_the_alert_rules_are_valid_and_pass_their_tests() -> None:
    """Prometheus accepts them; alerts_test.yaml states when each alert fires, with its labels."""
    promtool = partial(output_of, "promtool", folder=_ROOT / "deploy" / "prometheus")
    checked = promtool("check", "config", "prometheus.yaml", "prometheus.scale.yaml")

    assert f"{len(_rules())} rules found" in checked
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_is_tested_firing_and_not_firing() -> None:
    """An alert that is tested only one way could fire always, or never."""
    fires: set[str] = set()
    rests: set[str] = set()
    for case in _yaml("prometheus/alerts_test.yaml")["tests"]:
        for alert in case["alert_rule_test"]:
            (fires if alert["exp_alerts"] else rests).add(alert["alertname"])

    assert set(_rules()) == fires == rests


@table("alert", _rules().values())
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
