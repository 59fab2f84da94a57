"""
Structured logs whose fields are an allow-list.

A field that is not in `Field` does not type-check: adding one is a review of what it reveals.
There is none for a value, a peer, a submission or a time finer than the batch.
"""

import json
import logging
from collections.abc import Mapping
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
    """Give the fields by which an operator finds a batch again in the logs of both services."""
    return {"task_digest": task_digest.hex(), "batch_id": batch_id.hex()}


def event(name: str, fields: Mapping[Field, str | int], *, level: Level = "INFO") -> None:
    """Record that something happened. Bytes go in as hexadecimal text."""
    _LOGGER.log(logging.getLevelNamesMapping()[level], name, extra={"fields": dict(fields)})


class _JsonLines(logging.Formatter):
    """One JSON object a line: level, event, fields. No time: the collector adds its own."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        return json.dumps({"level": record.levelname, "event": record.getMessage(), **fields})


def configure(level: Level) -> None:
    """Send events of at least this level to standard error, a line each."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False
