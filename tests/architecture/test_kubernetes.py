"""The Kubernetes manifests are valid, hardened, and allow the connections that compose allows."""

import itertools
import re
import shutil
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.runtime.certificates import FRONT_END
from shuffledp.common.runtime.settings import ServiceSettings, load
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.shuffler.settings import ShufflerSettings
from tests.support.schemas import check_kubernetes, validator
from tests.support.tools import output_of

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_FOLDER: Final = _DEPLOY / "kubernetes"
_COMPOSE: Final = _DEPLOY / "compose.scale.yaml"
_SCHEMA: Final = yaml.safe_load(
    Path(__file__).with_name("kubernetes.schema.yaml").read_text(encoding="utf-8")
)
_COMPONENT: Final = "app.kubernetes.io/component"
_SETTINGS: Final[dict[str, type[ServiceSettings]]] = {
    "analyzer": AnalyzerSettings,
    "shuffler": ShufflerSettings,
    "issuer": IssuerSettings,
}
_OF_SEVERAL_PROCESSES: Final = ("analyzer", "shuffler")
_HOLDERS: Final = {"coordinator", "issuer"}
"""The one process of each party that holds its keys."""
_WORKLOADS: Final = {"Deployment", "StatefulSet"}

Edge = tuple[str, str, int]
"""Caller, callee and port."""


@cache
def _yaml(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def _kustomization(folder: Path) -> dict[str, Any]:
    [found] = _yaml(folder / "kustomization.yaml")
    return found


def _objects(party: str) -> list[dict[str, Any]]:
    """Return all objects in a party's base."""
    names = _kustomization(_FOLDER / party)["resources"]
    return [found for name in names for found in _yaml(_FOLDER / party / name)]


@cache
def _own() -> Any:
    return validator(_SCHEMA)


def _validate(found: dict[str, Any]) -> None:
    check_kubernetes(found)
    _own().validate(found)


def _of_kind(party: str, *kinds: str) -> Iterator[dict[str, Any]]:
    return (found for found in _objects(party) if found["kind"] in kinds)


def _pods(party: str) -> dict[str, dict[str, Any]]:
    """Return each component's pod specification."""
    workloads = _of_kind(party, *_WORKLOADS)
    templates = [found["spec"]["template"] for found in workloads]
    return {each["metadata"]["labels"][_COMPONENT]: each["spec"] for each in templates}


def _services(party: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one["spec"] for one in _of_kind(party, "Service")}


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def _ports(pod: dict[str, Any]) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"]
        for container in pod["containers"]
        for port in container["ports"]
    }


def _environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", ())}


@pytest.mark.parametrize("party", _SETTINGS)
def test_a_base_lists_exactly_the_files_of_its_folder(party: str) -> None:
    """No file is missing or forgotten, and the settings are among them."""
    base = _kustomization(_FOLDER / party)
    settings = [name for one in base["configMapGenerator"] for name in one.get("files", ())]
    files = {path.name for path in (_FOLDER / party).iterdir()}

    assert sorted(files - {"kustomization.yaml"}) == sorted([*base["resources"], *settings])
    assert f"shuffledp-{party}" == base["namespace"]


@pytest.mark.parametrize("party", _SETTINGS)
def test_every_object_of_a_base_follows_the_schemas(party: str) -> None:
    """In Kubernetes' own, unknown fields are errors; ours states how pods are hardened."""
    for found in _objects(party):
        _validate(found)


def test_every_rule_of_the_schema_applies_to_an_object() -> None:
    """A rule about a name that is no longer there would hold of nothing."""
    objects = [found for party in _SETTINGS for found in _objects(party)]
    for rule in _SCHEMA["allOf"]:
        condition = _own().evolve(schema=rule["if"])
        assert any(map(condition.is_valid, objects)), rule["if"]


@pytest.mark.parametrize("party", _SETTINGS)
def test_the_example_renders_with_every_name_resolved(party: str, tmp_path: Path) -> None:
    """Kustomize accepts it with secrets in place; what the example adds or changes is valid."""
    shutil.copytree(_FOLDER, tmp_path / "kubernetes")
    example = tmp_path / "kubernetes" / "example" / party
    for secret in _kustomization(example)["secretGenerator"]:
        for name in (file.rpartition("=")[2] for file in secret["files"]):
            (example / name).parent.mkdir(parents=True, exist_ok=True)
            (example / name).write_text("placeholder", encoding="utf-8")
    rendered = output_of("kubectl", "kustomize", str(example))
    objects = list(yaml.safe_load_all(rendered))
    for found in objects:
        if found["kind"] in {"Secret", "ConfigMap", "PersistentVolumeClaim"}:
            _validate(found)
    images = set(re.findall(r"image: (\S+)", rendered))
    assert all(image.startswith("registry.example.org/") for image in images)
    named = re.findall(r"secretName: (\S+)", rendered)
    assert set(named) == {one["metadata"]["name"] for one in objects if one["kind"] == "Secret"}


@pytest.mark.parametrize("party", _SETTINGS)
def test_a_probe_asks_the_own_party_at_a_port_of_the_pod(party: str) -> None:
    """The schema says which pods are probed, and how."""
    for pod in _pods(party).values():
        [container] = pod["containers"]
        for probe in (container[key] for key in container if key.endswith("Probe")):
            action = probe.get("httpGet") or probe.get("tcpSocket")
            assert "exec" in probe or action["port"] in _ports(pod)
            command = probe.get("exec", {}).get("command", [])
            if "shuffledp.common.runtime.health_check" in command:
                assert [party, "--settings", f"/etc/shuffledp/{party}.toml"] == command[3:]


def test_front_ends_are_replaced_one_at_a_time() -> None:
    """The grace holds the pause and the time that compose.yaml gives a service to end."""
    by_kind = {one["kind"]: one["spec"] for one in _yaml(_FOLDER / "shuffler" / "front-end.yaml")}
    pod = by_kind["Deployment"]["template"]["spec"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]

    assert pause + 30 < pod["terminationGracePeriodSeconds"]
    assert {"PodDisruptionBudget", "HorizontalPodAutoscaler", "Service"} <= by_kind.keys()


@pytest.mark.parametrize("party", _SETTINGS)
def test_one_process_holds_the_keys(party: str) -> None:
    """Of each party; the schema says how it runs."""
    assert 1 == len(_HOLDERS & _pods(party).keys())


@pytest.mark.parametrize("party", _SETTINGS)
def test_every_named_object_exists(party: str) -> None:
    """Secrets are the example's; everything else is the base's."""
    base, example = _kustomization(_FOLDER / party), _kustomization(_FOLDER / "example" / party)
    maps = {one["name"] for one in base["configMapGenerator"]}
    secrets = {one["name"] for one in example["secretGenerator"]}
    claims = {one["metadata"]["name"] for one in _of_kind(party, "PersistentVolumeClaim")}
    used: dict[str, set[str]] = {"configMap": set(), "secret": set(), "claim": set()}
    for found in _of_kind(party, *_WORKLOADS):
        pod = found["spec"]["template"]["spec"]
        own = {one["metadata"]["name"] for one in found["spec"].get("volumeClaimTemplates", ())}
        for volume in pod["volumes"]:
            used["configMap"] |= {volume["configMap"]["name"]} if "configMap" in volume else set()
            used["secret"] |= {volume["secret"]["secretName"]} if "secret" in volume else set()
            claim = volume.get("persistentVolumeClaim")
            used["claim"] |= {claim["claimName"]} if claim else set()
        for container in _containers(pod):
            sources = container.get("envFrom", ())
            used["configMap"] |= {source["configMapRef"]["name"] for source in sources}
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {volume["name"] for volume in pod["volumes"]} | own

    assert {"configMap": maps, "secret": secrets, "claim": claims} == used


@pytest.mark.parametrize("party", _SETTINGS)
def test_a_process_gets_no_other_roles_certificate(party: str) -> None:
    """Each mounts its own role's secret; only services hold the party's, only coordinators keys."""
    for name, pod in _pods(party).items():
        mounted = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
        expected = {"people"} if party == "issuer" else {f"internal-{name}"}
        expected |= {"party-front-end"} if name == "front-end" else set()
        expected |= {"party", "state-key"} if name in _HOLDERS else set()
        assert expected == mounted
    for secret in _kustomization(_FOLDER / "example" / party)["secretGenerator"]:
        role = secret["name"].removeprefix("internal-")
        names = {Path(file).name for file in secret["files"]}
        owner = {"party": party, "party-front-end": FRONT_END}.get(role, role)
        own = {"authority.pem", f"{owner}.pem", f"{owner}.key"}
        assert names == {"state-key": {"state.key"}, "people": {"people.txt"}}.get(role, own)


@pytest.mark.parametrize("party", _SETTINGS)
def test_every_service_selects_pods_with_its_ports(party: str) -> None:
    """A misspelt selector or port would be an address that nobody answers."""
    pods = _pods(party)
    for service in _services(party).values():
        ports = _ports(pods[service["selector"][_COMPONENT]])
        for port in service["ports"]:
            assert port["port"] == ports[port["targetPort"]]
    for found in _of_kind(party, "StatefulSet"):
        assert found["spec"]["serviceName"] in _services(party)


def _addresses(container: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the host and port of every service that a container calls."""
    arguments = container.get("command", [])
    texts = [text for name, text in _environment(container).items() if "LISTEN" not in name]
    for text in (*texts, *arguments):
        found = re.fullmatch(r"(?:tls://)?([a-z-]+):(\d+)", text)
        if found:
            yield found[1], int(found[2])
        if text.startswith("postgresql://"):
            yield text.partition("@")[2].partition("/")[0], 5432


@pytest.mark.parametrize("party", _OF_SEVERAL_PROCESSES)
def test_an_address_in_the_settings_is_a_service_that_may_be_called(party: str) -> None:
    """It is a service with this port, and the network policies allow the connection."""
    services, allowed = _services(party), _allowed(party)
    called = {
        (name, host, port)
        for name, pod in _pods(party).items()
        for container in pod["containers"]
        for host, port in _addresses(container)
    }

    assert {("coordinator", "scheduler", 8786), ("worker", "coordinator", 7003)} <= called
    for name, host, port in called:
        callee = services[host]["selector"][_COMPONENT]
        assert port in {one["port"] for one in services[host]["ports"]}
        assert (f"{party}/{name}", f"{party}/{callee}", port) in allowed


def _check_reached(caller: str, party: str, address: str) -> None:
    """Check that an address is another party's service, in its namespace, and may be called."""
    found = re.fullmatch(r"([\w-]+)\.([\w-]+):(\d+)", address)
    assert found
    assert _kustomization(_FOLDER / party)["namespace"] == found[2]
    service, port = _services(party)[found[1]], int(found[3])
    assert port in {one["port"] for one in service["ports"]}
    edge = (f"{caller}/coordinator", f"{party}/{service['selector'][_COMPONENT]}", port)
    assert edge in _allowed(caller) & _allowed(party)


def test_the_shuffler_may_call_the_analyzer() -> None:
    """The base has its address."""
    [literal] = [
        text
        for one in _kustomization(_FOLDER / "shuffler")["configMapGenerator"]
        for text in one.get("literals", ())
    ]
    name, _, address = literal.partition("=")

    assert "SHUFFLEDP_SHUFFLER_ANALYZER" == name
    _check_reached("shuffler", "analyzer", address)


def test_the_analyzer_may_call_the_witnesses_that_its_settings_suggest() -> None:
    """Their addresses are comments at first."""
    text = (_FOLDER / "analyzer" / "analyzer.toml").read_text(encoding="utf-8")
    settings = tomllib.loads(text.replace("    # {", "    {"))

    assert () == tuple(tomllib.loads(text)["witnesses"])
    for party, witness in zip(("shuffler", "issuer"), settings["witnesses"], strict=True):
        _check_reached("analyzer", party, witness["address"])


@pytest.mark.parametrize("party", _SETTINGS)
def test_the_settings_load_and_name_mounted_files(party: str) -> None:
    """With each service's environment, as far as this version has its settings."""
    file = _FOLDER / party / f"{party}.toml"
    for name in {"front-end", *_HOLDERS} & _pods(party).keys():
        [container] = _pods(party)[name]["containers"]
        environment = _environment(container) | {
            "SHUFFLEDP_SHUFFLER_ANALYZER": "analyzer:7001",
            "SHUFFLEDP_SHUFFLER_ANALYZER_IDENTITY": "00" * 32,
        }
        prefix = f"SHUFFLEDP_{party.upper()}"
        settings = load(_SETTINGS[party], file, environment, prefix)

        mounts = {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
        keys = (settings.tls_certificate, settings.tls_key, settings.tls_authority)
        state_key = getattr(settings, "state_key", None)
        files = (*keys, state_key, getattr(settings, "people", None))
        assert [] == [path for path in files if path and path.parent not in mounts]
        assert (name in _HOLDERS) == (state_key is not None)
        assert settings.state_directory.parent in mounts
        listening = {settings.listen, settings.metrics_listen}
        assert {f"0.0.0.0:{_ports(_pods(party)[name])[port]}" for port in ("grpc", "metrics")} == (
            listening
        )


@pytest.mark.parametrize("party", _SETTINGS)
def test_prometheus_scrapes_the_pods_that_have_metrics(party: str, tmp_path: Path) -> None:
    """
    It finds them by the name of their port, in the parties' namespaces.

    promtool checks the rest of the file, as Debian's knows no discovery on Kubernetes.
    """
    folder = _DEPLOY / "prometheus"
    [config] = _yaml(folder / "prometheus.kubernetes.yaml")
    [job] = config["scrape_configs"]
    [discovery] = job["kubernetes_sd_configs"]
    keep, _ = job["relabel_configs"]
    measured = {name for name, pod in _pods(party).items() if keep["regex"] in _ports(pod)}
    rest = {name: value for name, value in job.items() if name != "kubernetes_sd_configs"}
    shutil.copy(folder / "alerts.yaml", tmp_path)
    file = tmp_path / "rest.yaml"
    file.write_text(yaml.safe_dump(config | {"scrape_configs": [rest]}), encoding="utf-8")

    assert "SUCCESS" in output_of("promtool", "check", "config", str(file))
    assert "shuffledp" == job["job_name"]  # the alert rules and the dashboard name it
    assert _kustomization(_FOLDER / party)["namespace"] in discovery["namespaces"]["names"]
    assert measured == {
        callee.partition("/")[2]
        for caller, callee, port in _allowed(party)
        if (caller, port) == ("prometheus", 9464)
    }


# --- network policies ----------------------------------------------------------------------------

_OUTSIDE: Final = {"monitoring": "prometheus", "kube-system": "names"}
"""Pods in namespaces of others, by namespace."""


def _peer(party: str, peer: dict[str, Any]) -> str:
    """Return the name of a policy's peer."""
    if "ipBlock" in peer:
        return "devices"
    [label] = peer["podSelector"]["matchLabels"].values()
    if "namespaceSelector" in peer:
        [namespace] = peer["namespaceSelector"]["matchLabels"].values()
        other = namespace.removeprefix("shuffledp-")
        return _OUTSIDE.get(namespace) or f"{other}/{label}"
    return "operator" if label == "operator" else f"{party}/{label}"


def _allowed(party: str) -> set[Edge]:
    """
    Return the edges that a party's policies allow, and check that both ends agree.

    Names are left to the cluster, and to `test_everything_else_is_denied`.
    """
    incoming, outgoing = set[Edge](), set[Edge]()
    for policy in _of_kind(party, "NetworkPolicy"):
        spec = policy["spec"]
        if not spec["podSelector"]:
            continue
        own = _peer(party, {"podSelector": spec["podSelector"]})
        for rule in spec.get("ingress", ()):
            pairs = itertools.product(rule["from"], rule["ports"])
            incoming |= {(_peer(party, peer), own, port["port"]) for peer, port in pairs}
        for rule in spec.get("egress", ()):
            pairs = itertools.product(rule["to"], rule["ports"])
            outgoing |= {(own, _peer(party, peer), port["port"]) for peer, port in pairs}
    mine = {"operator", *(f"{party}/{name}" for name in _pods(party))}
    assert {edge for edge in incoming if edge[0] in mine} == {
        edge for edge in outgoing if edge[1] in mine
    }
    return incoming | outgoing


@pytest.mark.parametrize("party", _SETTINGS)
def test_everything_else_is_denied(party: str) -> None:
    """One policy denies both directions to all pods; a second lets them ask for names."""
    policies = {one["metadata"]["name"]: one["spec"] for one in _of_kind(party, "NetworkPolicy")}
    everyone = {name for name, spec in policies.items() if not spec["podSelector"]}

    assert {"default-deny", "names"} == everyone
    [rule] = policies["names"]["egress"]
    assert ["names"] == [_peer(party, peer) for peer in rule["to"]]
    assert {53} == {port["port"] for port in rule["ports"]}
    assert set(_pods(party)) | {"operator"} == policies.keys() - everyone


@pytest.mark.parametrize("party", _SETTINGS)
def test_every_allowed_port_is_one_that_the_callee_has(party: str) -> None:
    """The analyzer's port at the shuffler is checked above."""
    for _, callee, port in _allowed(party):
        if callee.startswith(f"{party}/"):
            assert port in _ports(_pods(party)[callee.partition("/")[2]]).values()


_NAMES: Final = {
    "issuer": "issuer/issuer",
    "user_agent": "devices",
    "loadgen": "devices",
    "haproxy": "devices",  # here the load balancer of a service
    "front-end": "shuffler/front-end",
    "postgres": "shuffler/postgres",
    "shuffler": "shuffler/coordinator",
    "shuffler-scheduler": "shuffler/scheduler",
    "shuffler-worker": "shuffler/worker",
    "analyzer": "analyzer/coordinator",
    "analyzer-scheduler": "analyzer/scheduler",
    "analyzer-worker": "analyzer/worker",
    "operator": "operator",
    "prometheus": "prometheus",
}
"""The names that services of the compose file have here."""
_NEVER_CONNECT: Final = {frozenset({"shuffler/front-end", "shuffler/worker"})}
"""Kinds that share a network there only because both call the coordinator and PostgreSQL."""


def _compose_pairs() -> set[frozenset[str]]:
    """Return the services that share a network of the compose file, without equal ones."""
    [compose] = _yaml(_COMPOSE)
    [extended] = _yaml(_DEPLOY / "compose.yaml")
    members: dict[str, set[str]] = {}
    for name, service in compose["services"].items():
        networks = set(service.get("networks", ()))
        if "extends" in service:
            networks |= set(extended["services"][name].get("networks", ()))
        for network in networks:
            members.setdefault(network, set()).add(_NAMES[re.sub(r"-\d+$", "", name)])
    return {
        frozenset(pair)
        for names in members.values()
        for pair in itertools.combinations(sorted(names), 2)
    }


def test_the_allowed_connections_are_those_of_the_compose_file() -> None:
    """
    Kinds of pods that may connect here, in some direction, share a network there, and the reverse.

    Replicas of one kind share networks there too, and may not connect here. Devices, whatever an
    address is, connect to two ports alone.
    """
    edges = set[Edge]().union(*map(_allowed, _SETTINGS))

    assert _compose_pairs() - _NEVER_CONNECT == {frozenset(edge[:2]) for edge in edges}
    assert _compose_pairs() >= _NEVER_CONNECT
    assert {("devices", "shuffler/front-end", 7002), ("devices", "issuer/issuer", 7003)} == {
        edge for edge in edges if "devices" in edge[:2]
    }
