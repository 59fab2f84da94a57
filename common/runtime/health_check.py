"""
Check the health of this machine's own service. Run by a container engine.

Run as `python -m shuffledp.common.runtime.health_check PARTY --settings FILE`, with the settings
and the environment of the service, whose address is in STATE/address.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic.dataclasses import dataclass

from shuffledp.common.errors import PeerError, SettingsError, ShuffleDpError
from shuffledp.common.runtime.certificates import RELAY
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.runtime.settings import Role, ServiceSettings, load
from shuffledp.common.runtime.tls import TlsFiles
from shuffledp.common.runtime.validation import STRICT

_PROGRAM: Final = "python -m shuffledp.common.runtime.health_check"
_SERVICES: Final = ("analyzer", "shuffler", "relay", "issuer", "user_agent", "witness")
_SECONDS: Final = 5.0
"""Timeout of the whole check, in seconds."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class _Settings(ServiceSettings):
    role: Role = "all"


async def check(settings: ServiceSettings, party: str) -> None:
    """
    Check a service over its own transport, with its own certificate.

    Raises:
        SettingsError: The service has no valid address yet, or its TLS files are unusable.
        PeerError: The service does not answer, or is unhealthy.
        PeerRefusalError: The service refused the call.
    """
    file = settings.state_directory / "address"
    try:
        address = file.read_text(encoding="utf-8").strip()  # 0.0.0.0 and [::] reach this machine
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{file} does not hold the service's address: is it running?"
        ) from error
    files = None if address.startswith("unix:") else TlsFiles.of(settings, party)
    identity = files.read() if files else None
    authority = identity.authority if identity else None
    async with open_channel(address, party, authority, own=identity) as channel:
        call = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=_SECONDS
        )
        answer = await reply(call, f"the service at {address}")
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise PeerError(f"the service at {address} is not serving")


def main() -> None:
    """Check once. Exit with 0 if the service is serving; otherwise print why, and exit with 1."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Check that this machine's own service is serving.",
        epilog=f"Example: {_PROGRAM} analyzer --settings analyzer.toml",
    )
    parser.add_argument("party", choices=_SERVICES, help="party that runs the service")
    parser.add_argument("--settings", type=Path, help="a TOML settings file")
    arguments = parser.parse_args()
    prefix = f"SHUFFLEDP_{arguments.party.upper()}"
    try:
        settings = load(_Settings, arguments.settings, os.environ, prefix, leave_out_unknown=True)
        asyncio.run(check(settings, RELAY if settings.role == "relay" else arguments.party))
    except ShuffleDpError as error:
        sys.exit(f"{arguments.party}: {error}")


if __name__ == "__main__":
    main()
