"""Convert a job for a worker of an engine between protocol buffers and values."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from shuffledp.common.errors import WireError
from shuffledp.protos.shuffledp.v1 import jobs_pb2

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")


def job_to_wire(job: "DataclassInstance") -> jobs_pb2.GetJobResponse:
    """Convert a job's numbers, texts and bytes, secrets included; leave out all other fields."""
    found = {field.name: getattr(job, field.name) for field in fields(job)}
    return jobs_pb2.GetJobResponse(
        numbers={name: value for name, value in found.items() if isinstance(value, int)},
        texts={name: value for name, value in found.items() if isinstance(value, str)},
        contents={name: value for name, value in found.items() if isinstance(value, bytes)},
    )


def job_from_wire(
    job_class: type[D], message: jobs_pb2.GetJobResponse, places: Mapping[str, Any]
) -> D:
    """
    Convert a job of this class, whose other fields are in `places`. Run by workers.

    Raises WireError if a field is missing or of another type. Ranges are not checked: the message
    comes from this party's own coordinator.
    """
    by_type: dict[object, Mapping[str, Any]] = {
        int: message.numbers,
        str: message.texts,
        bytes: message.contents,
    }
    values = {}
    for field in fields(job_class):
        own_type = getattr(field.type, "__supertype__", field.type)  # that of a NewType
        found = by_type.get(own_type, places)
        if field.name not in found:
            raise WireError(f"the job has no {field.name}")
        values[field.name] = found[field.name]
    return job_class(**values)
