"""
Whether gRPC is kept from writing a log of its own, whatever the environment asks of it.

Traced, it would write who calls, and every byte after decryption. A service that might let it is
started again, which is heard here and not done.
"""

import contextlib
import io
import os
import sys
from collections.abc import Mapping
from typing import Any, Final
from unittest.mock import patch

from analyzer.settings import AnalyzerSettings
from common.runtime.service import Service, main
from deploy.audit.checks import Checks

_OTHERS: Final = {"LANG": "C"}
"""What a service keeps of its environment."""
_SILENT: Final = {**_OTHERS, "GRPC_VERBOSITY": "NONE"}
_LOUD: Final[tuple[Mapping[str, str], ...]] = (
    {"GRPC_TRACE": "all", "GRPC_VERBOSITY": "DEBUG"},
    {"GRPC_TRACE": "http", "GRPC_VERBOSITY": "NONE"},
    {"GRPC_VERBOSITY": "INFO"},
    {},
)


class _StartedAgain(Exception):  # noqa: N818  # no error
    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__()
        self.environment = dict(environment)


def check_silence(checks: Checks) -> None:
    """Start a service that lacks its settings, in each of some environments."""
    for loud in _LOUD:
        checks.must(
            "a service is started again where gRPC might write a log, so that it writes none",
            _environment_after({**_OTHERS, **loud}) == _SILENT,
        )
    checks.must("it is not where gRPC writes none", _environment_after(_SILENT) is None)


def _environment_after(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Give the environment in which a service is started again; None if it goes on as it is."""

    def started_again(_: str, __: list[str], environment: Mapping[str, str]) -> None:
        raise _StartedAgain(environment)

    with (
        patch.dict(os.environ, environment, clear=True),
        patch.object(os, "execve", started_again),
        patch.object(sys, "argv", ["analyzer"]),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            main("analyzer", AnalyzerSettings, _start)
        except _StartedAgain as again:
            return again.environment
        except SystemExit:
            return None
    return None


async def _start(settings: Any) -> Service:  # noqa: ANN401  # never any
    raise AssertionError(settings)
