import json
import sys
import typing
from typing import Final

import pytest

from shuffledp.common.runtime.logs import Field, RepeatedFailures
from tests.support.tools import output_of

_PROGRAM: Final = """
import asyncio, logging
from shuffledp.common.runtime import logs

logs.configure("DEBUG")
logging.getLogger("grpc._cython.cygrpc").error("peer %s", "198.51.100.7")
logging.getLogger("asyncio").debug("198.51.100.7")

async def fail():
    raise RuntimeError("198.51.100.7 sent 42")

async def main():
    asyncio.get_running_loop().create_task(fail())
    await asyncio.sleep(0.01)
    asyncio.get_running_loop().call_exception_handler({"message": "of 198.51.100.7"})
    logs.event("serving", {"party": "shuffler"})

asyncio.run(main())
"""


def test_text_of_libraries_and_errors_is_not_logged() -> None:
    """Only the logger's name, the kind of error and its place, as one JSON object per line."""
    written = output_of(sys.executable, "-c", _PROGRAM)
    records = [json.loads(line) for line in written.splitlines()]

    assert "198.51.100.7" not in written
    assert ["grpc._cython.cygrpc", "asyncio", "asyncio"] == [
        record["event"].removeprefix("logged by ")
        for record in records
        if record["event"] != "serving"
    ]
    assert {"error": "RuntimeError", "where": "<string>:10"}.items() <= records[1].items()
    assert {"level": "INFO", "event": "serving", "party": "shuffler"} in records
    allowed = {*typing.get_args(Field), "level", "event"}
    for record in records:
        assert set(record) <= allowed


def test_a_failure_that_repeats_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged again if it changes, and if it returns after a success."""
    failures = RepeatedFailures()

    for error in ("PeerError", "PeerError", "StorageError", "StorageError"):
        failures.failed("batch", "not sent", {"error": error})
    failures.failed("another", "not sent", {"error": "StorageError"})
    failures.ended("batch")
    failures.failed("batch", "not sent", {"error": "StorageError"})

    logged = [getattr(record, "fields", {})["error"] for record in caplog.records]
    assert ["PeerError", "StorageError", "StorageError", "StorageError"] == logged
