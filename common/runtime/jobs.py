"""The jobs that a coordinator offers to workers of its engine, in memory only."""

import dataclasses
import json
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from common.errors import UnknownJobError
from common.runtime.executor import Job

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class OfferedJobs:
    """Jobs whose parts run now, by kind and folder of blocks."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Job] = {}

    @contextmanager
    def offer(self, job: Job) -> Generator[None]:
        """Offer a job while its parts run; a later one of its kind and folder replaces it."""
        name = (job.kind, job.folder)
        self._jobs[name] = job
        try:
            yield
        finally:
            if self._jobs.get(name) is job:
                del self._jobs[name]

    def find(self, kind: str, folder: str) -> bytes:
        """Return an offered job with its secrets, for a worker; else raise UnknownJobError."""
        job = self._jobs.get((kind, folder))
        if job is None:
            raise UnknownJobError("no part of this job runs now")
        return job.to_bytes()


def encode_job(job: "DataclassInstance", without: Collection[str]) -> bytes:
    """Encode a job's fields, which are numbers, texts and bytes, as JSON; leave some out."""
    names = [field.name for field in dataclasses.fields(job) if field.name not in without]
    return json.dumps({name: getattr(job, name) for name in names}, default=_hex).encode()


def decode_job(encoded: bytes) -> dict[str, Any]:
    """Decode the fields of a job that this party's own coordinator encoded."""
    fields: dict[str, Any] = json.loads(encoded, object_hook=_bytes)
    return fields


def _hex(content: bytes) -> dict[str, str]:
    return {"hex": content.hex()}


def _bytes(fields: Mapping[str, Any]) -> Mapping[str, Any] | bytes:
    return bytes.fromhex(fields["hex"]) if list(fields) == ["hex"] else fields
