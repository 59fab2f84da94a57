"""Privileges, file systems and networks of the running containers."""

from typing import Any, Final

import pytest

from shuffledp.deploy.docker.deployment import SERVICES, Deployment
from tests.support.containers import TAG, inside, inspect

_CONNECT: Final = """
import json, socket
from concurrent.futures import ThreadPoolExecutor
from itertools import product
def attempt(way):
    device, target = way
    with socket.socket() as caller:
        caller.settimeout(3)
        try:
            if device:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            caller.connect(target)
        except ConnectionRefusedError:
            return "reached"
        except OSError:
            return "unreachable"
    return "connected"
devices = [name for _, name in socket.if_nameindex()] if {every_device} else [""]
with ThreadPoolExecutor() as pool:
    print(json.dumps(list(pool.map(attempt, product(devices, {targets})))))
"""


def _addresses(deployment: Deployment, service: str) -> dict[str, str]:
    """Return a service's address in each of its networks."""
    networks = inspect(deployment, service)["NetworkSettings"]["Networks"]
    prefix = f"{deployment.project}_"
    return {name.removeprefix(prefix): one["IPAddress"] for name, one in networks.items()}


def _attempts(
    deployment: Deployment,
    service: str,
    targets: list[tuple[str, int]],
    *,
    every_device: bool = False,
) -> set[str]:
    """Connect from a service, by every network device if asked to; return distinct outcomes."""
    program = _CONNECT.format(targets=targets, every_device=every_device)
    found: list[str] = inside(deployment, service, program)
    return set(found)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_privilege(deployment: Deployment, service: str) -> None:
    """Uid 10001, no capability in any set, none to be gained, system calls filtered."""
    found: dict[str, Any] = inside(
        deployment,
        service,
        "import json, os\n"
        "lines = open('/proc/1/status').read().splitlines()\n"
        "status = dict(line.split(':\\t', 1) for line in lines if ':\\t' in line)\n"
        "wanted = ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')\n"
        "print(json.dumps({'uid': os.stat('/proc/1').st_uid, **{w: status[w] for w in wanted}}))",
    )

    none = "0" * 16
    assert {
        "uid": 10001,
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), none),
        "NoNewPrivs": "1",
        "Seccomp": "2",
    } == found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_writes_to_its_state_and_to_scratch_alone(
    deployment: Deployment, service: str
) -> None:
    """The root file system is read-only, both as the engine reports it and in fact."""
    program = (
        "import errno, json\n"
        "found = {}\n"
        "for folder in ('', '/app', '/venv', '/bytecode', '/etc', '/run/secrets', '/tmp',\n"
        "               '/var/lib/shuffledp'):\n"
        "    try:\n"
        "        open(folder + '/written', 'w').close()\n"
        "        found[folder] = 'written'\n"
        "    except OSError as error:\n"
        "        found[folder] = errno.errorcode[error.errno]\n"
        "print(json.dumps(found))"
    )
    found: dict[str, str] = inside(deployment, service, program)

    written = {folder for folder, what in found.items() if what == "written"}
    assert {"/tmp", "/var/lib/shuffledp"} == written  # noqa: S108  # the container's own
    assert "EROFS" == found[""]
    assert inspect(deployment, service)["HostConfig"]["ReadonlyRootfs"]


@pytest.mark.parametrize(("one", "other"), [("user_agent", "analyzer"), ("analyzer", "user_agent")])
def test_agents_and_the_analyzer_cannot_reach_each_other(
    deployment: Deployment, one: str, other: str
) -> None:
    """Neither reaches any address and port of the other, while the shuffler reaches both."""
    targets = [
        (address, port)
        for address in _addresses(deployment, other).values()
        for port in (7001, 9464)
    ]
    shared = {"analyzer": "core", "user_agent": "edge"}[other]
    beside = (_addresses(deployment, other)[shared], 7001)

    assert {"unreachable"} == _attempts(deployment, one, targets)
    assert {"connected" if other == "analyzer" else "reached"} == _attempts(
        deployment, "shuffler", [beside]
    )


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_reaches_nothing_outside(deployment: Deployment, service: str) -> None:
    """Its networks are internal or, for browsers, without translated addresses."""
    outside = [("192.0.2.1", 443), ("198.51.100.1", 53)]  # reserved for documentation

    assert {"unreachable"} == _attempts(deployment, service, outside)


@pytest.mark.parametrize("service", ["analyzer", "shuffler"])
def test_other_parties_reach_the_issuers_witness_alone(
    deployment: Deployment, service: str
) -> None:
    """The analyzer in a network of their own; devices in theirs."""
    addresses = _addresses(deployment, "issuer")
    witnessing = [(addresses["witnessing"], 7003)]

    assert {"connected" if service == "analyzer" else "unreachable"} == _attempts(
        deployment, service, witnessing
    )
    assert {"unreachable"} == _attempts(
        deployment,
        service,
        [(address, 7003) for name, address in addresses.items() if name != "witnessing"],
    )
    assert {"connected"} == _attempts(deployment, "user_agent", [(addresses["tokens"], 7003)])


@pytest.mark.parametrize("service", ["analyzer", "shuffler", "issuer"])
def test_metrics_are_read_in_their_own_network(deployment: Deployment, service: str) -> None:
    """Any container in that network reads them, under the name in Prometheus' configuration."""
    engine, network = deployment.engine, f"metrics-{service}"
    page = engine.output(
        *("run", "--rm", f"--network={deployment.project}_{network}", "--entrypoint=python3"),
        *(f"shuffledp-operator:{TAG}", "-c"),
        "from urllib.request import urlopen\n"
        f"print(urlopen('http://{service}:9464/metrics', timeout=5).read().decode())",
    )

    assert "# HELP shuffledp_" in page


@pytest.mark.parametrize("path", ["7004/", "7012/healthz", "7013/healthz"])
def test_this_machine_reaches_the_page_and_the_services_that_it_calls(
    deployment: Deployment, path: str
) -> None:
    """On loopback; a container in the network of the engine's machine stands for a browser."""
    status = deployment.engine.output(
        *("run", "--rm", "--network=host", "--entrypoint=python3"),
        *(f"shuffledp-operator:{TAG}", "-c"),
        "from urllib.request import urlopen\n"
        f"print(urlopen('http://127.0.0.1:{path}', timeout=5).status)",
    )

    assert "200" == status


@pytest.mark.parametrize(
    ("service", "caller", "network"),
    [
        ("shuffler", "user_agent", "edge"),
        ("shuffler", "analyzer", "core"),
        ("analyzer", "shuffler", "core"),
        ("user_agent", "shuffler", "edge"),
        ("issuer", "user_agent", "tokens"),
        ("issuer", "analyzer", "witnessing"),
    ],
)
def test_the_other_parties_cannot_read_metrics(
    deployment: Deployment, service: str, caller: str, network: str
) -> None:
    """Shared networks serve no metrics, and the metrics' networks are unreachable from there."""
    addresses = _addresses(deployment, service)
    shared = [(addresses[network], 9464)]

    assert {"reached"} == _attempts(deployment, caller, shared)
    if service != "user_agent":  # it has none
        metrics = [(addresses[f"metrics-{service}"], 9464)]
        assert "reached" in _attempts(deployment, caller, shared, every_device=True)
        assert {"unreachable"} == _attempts(deployment, caller, metrics, every_device=True)
