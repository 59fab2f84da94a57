"""
What servers are opened with: bounds on what clients make them hold, a place and a clock.

No server is started: what gRPC, or the system, is told is kept and compared with what it must be.
"""

import contextlib
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import grpc

from common.errors import SettingsError
from common.runtime.access import connections_of
from common.runtime.admission_interceptor import AdmissionInterceptor as GateInterceptor
from common.runtime.clock import SystemClock
from common.runtime.rpc import bind, make_server
from deploy.audit.checks import Checks

_SERVICES: Final = ("shuffledp.v1.UserAgent", "shuffledp.v1.Shuffler", "shuffledp.v1.Analyzer")
_MIB: Final = 1 << 20
_BOUNDS: Final = MappingProxyType(
    {
        "grpc.max_receive_message_length": 4 * _MIB,
        "grpc.server_handshake_timeout_ms": 10_000,
        "grpc.max_connection_idle_ms": 300_000,
        "grpc.max_connection_age_ms": 3_600_000,
        "grpc.max_connection_age_grace_ms": 3_610_000,
        "grpc.max_allowed_incoming_connections": 8192,
        "grpc.max_concurrent_streams": 1024,
        "grpc.server.max_pending_requests": 4096,
        "grpc.server.max_pending_requests_hard_limit": 8192,
        "grpc.http2.lookahead_bytes": 16 * 1024,
    }
)
"""The most that each may be."""
_MOST_CALLS: Final = 4096
_LATER: Final = 1e6
"""Seconds by which somebody sets the time."""


def check_servers(checks: Checks) -> None:
    """Check what servers are told, where they listen, and how their processes begin."""
    for service in _SERVICES:
        _check_bounds(checks, service)
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        _check_sockets(checks, Path(folder))
    _check_clock(checks)


def _check_bounds(checks: Checks, service: str) -> None:
    gate, told = GateInterceptor(certificates=True, token=None), dict[str, Any]()
    with patch.object(grpc.aio, "server", lambda **fields: told.update(fields)):
        make_server(gate, connections_of(service))
    options = dict(told["options"])
    checks.must(
        "what clients make a server hold is bounded",
        all(0 < options.get(name, 0) <= most for name, most in _BOUNDS.items())
        and 0 < told["maximum_concurrent_rpcs"] <= _MOST_CALLS,
    )
    checks.must("every call passes the gate", told["interceptors"][-1:] == [gate])
    checks.must(
        "no other process takes calls at a server's port", options.get("grpc.so_reuseport") == 0
    )


def _check_sockets(checks: Checks, folder: Path) -> None:
    """A socket where somebody listens is left alone, and so is any other file."""
    path, file = Path("socket"), Path("file")
    with contextlib.chdir(folder):  # the address of a socket holds no long path
        file.touch()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            taken = _bound(path)
        checks.must(
            "a server takes no place where another listens",
            not taken and not _bound(file) and _bound(path) and _bound(Path("new")),
        )


def _bound(path: Path) -> bool:
    """Say whether a server would listen there."""
    ports = list[str]()
    server: Any = SimpleNamespace(add_secure_port=lambda address, _: ports.append(address))
    try:
        bind(server, f"unix:{path}", None)
    except SettingsError:
        return False
    return ports == [f"unix:{path}"]


def _check_clock(checks: Checks) -> None:
    clock = SystemClock()
    now, elapsed = clock.now(), clock.elapsed()
    with patch("time.time", lambda: now + _LATER):
        later, passed = clock.now() - now, clock.elapsed() - elapsed
    checks.must(
        "what passes is told apart from what the time is set to",
        later == _LATER and 0 <= passed < _LATER / 2,
    )
