"""
Structured logs whose fields are an allow-list, for the records of libraries too.

A field that is not in `Field` does not type-check: adding one is a review of what it reveals.
There is none for a value, a peer, a submission or a time finer than the batch.
"""

import json
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

Field = Literal[
    "party",
    "address",
    "task_digest",
    "batch_id",
    "n_users",
    "state",
    "refused",
    "status",
    "key_id",
    "error",
    "where",
    "days",
]
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

_LOGGER: Final = logging.getLogger("shuffledp")


def batch_fields(task_digest: bytes, batch_id: bytes) -> dict[Field, str | int]:
    """Return the fields that identify a batch in the logs of both services."""
    return {"task_digest": task_digest.hex(), "batch_id": batch_id.hex()}


def event(name: str, fields: Mapping[Field, str | int], *, level: Level = "INFO") -> None:
    """Record that something happened. Bytes go in as hexadecimal text."""
    _LOGGER.log(logging.getLevelNamesMapping()[level], name, extra={"fields": dict(fields)})


class _JsonLines(logging.Formatter):
    """One JSON object a line: level, event, fields. No time: the collector adds its own."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        return json.dumps({"level": record.levelname, "event": record.getMessage(), **fields})


class _Library(logging.Formatter):
    """A library's record: the kind of error and its place. Its text may hold what a user sent."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"where": f"{record.filename}:{record.lineno}"}
        kind, _, trace = record.exc_info or (None, None, None)
        if kind is not None:
            fields["error"] = kind.__name__
        if trace is not None:
            last = traceback.extract_tb(trace)[-1]
            fields["where"] = f"{Path(last.filename).name}:{last.lineno}"
        return json.dumps({"level": record.levelname, "event": f"logged by {record.name}"} | fields)


def configure(level: Level) -> None:
    """Send events of at least this level, and libraries' warnings, to standard error."""
    libraries = logging.StreamHandler()
    libraries.setFormatter(_Library())
    libraries.setLevel(logging.WARNING)
    logging.getLogger().handlers[:] = [libraries]
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False
