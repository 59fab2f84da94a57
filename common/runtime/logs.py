"""
Structured logs with an allow-list of fields.

A field that is not in `Field` does not type-check; review what it reveals before adding it. No
field holds a value, a peer, a submission or a time finer than the batch. Libraries' records are
reduced to the same fields.
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
    "clock",
    "expected",
    "reason",
]
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

_LOGGER: Final = logging.getLogger("shuffledp")


def batch_fields(task_digest: bytes, batch_id: bytes) -> dict[Field, str | int]:
    """Return the fields that identify a batch in the logs of both services."""
    return {"task_digest": task_digest.hex(), "batch_id": batch_id.hex()}


def event(name: str, fields: Mapping[Field, str | int], *, level: Level = "INFO") -> None:
    """Log an event. Pass bytes as hexadecimal text."""
    _LOGGER.log(logging.getLevelNamesMapping()[level], name, extra={"fields": dict(fields)})


class RepeatedFailures:
    """Logs a failure when it begins and when it changes, not each time that work is retried."""

    def __init__(self) -> None:
        self._logged: dict[object, tuple[str, Mapping[Field, str | int], Level]] = {}

    def failed(
        self,
        subject: object,
        name: str,
        fields: Mapping[Field, str | int],
        *,
        level: Level = "WARNING",
    ) -> None:
        """Log that work for `subject` failed, unless its last failure was the same."""
        failure = name, dict(fields), level
        if self._logged.get(subject) != failure:
            self._logged[subject] = failure
            event(name, fields, level=level)

    def ended(self, subject: object) -> None:
        """Forget the failure of `subject`: its work succeeded, or ended."""
        self._logged.pop(subject, None)


def error_fields(error: BaseException) -> dict[Field, str]:
    """Return the type and place of an error, but not its text, which may contain users' data."""
    fields: dict[Field, str] = {"error": type(error).__name__}
    if error.__traceback__ is not None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        fields["where"] = f"{Path(last.filename).name}:{last.lineno}"
    return fields


class _JsonLines(logging.Formatter):
    """
    Formats a record as one line of JSON: level, event, fields. The log collector adds the time.

    A library's record is reduced to its logger, its place, and the type and place of its error: its
    text may contain users' data.
    """

    def format(self, record: logging.LogRecord) -> str:
        if record.name == _LOGGER.name:
            event, fields = record.getMessage(), getattr(record, "fields", {})
        else:
            event, fields = f"logged by {record.name}", {}
            fields["where"] = f"{record.filename}:{record.lineno}"
            if record.exc_info and record.exc_info[1] is not None:
                fields |= error_fields(record.exc_info[1])
        return json.dumps({"level": record.levelname, "event": event, **fields})


def configure(level: Level) -> None:
    """Write events of at least this level, and libraries' warnings, to standard error."""
    libraries, handler = logging.StreamHandler(), logging.StreamHandler()
    for output in (libraries, handler):
        output.setFormatter(_JsonLines())
    libraries.setLevel(logging.WARNING)
    logging.getLogger().handlers[:] = [libraries]
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False
