from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import Annotated, Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from common.errors import TaskError, WireError
from common.limits import parse_bounded
from common.task.specs import check_fields, whole
from common.wire.fields import Codec

_Short = Annotated[str, partial(parse_bounded, length=3)]


@dataclass(frozen=True)
class _Options:
    java_package: _Short | None
    go_package: "_Short | None"


@dataclass(frozen=True)
class _File:
    name: _Short
    package: "_Short"
    syntax: _Short | None
    options: _Options | None


_FULL = _File("a", "b", "c", _Options("d", "e"))
_EMPTY = _File("", "", None, None)


@pytest.mark.parametrize("file", [_FULL, _EMPTY])
def test_optional_and_nested_fields_are_read_back(file: _File) -> None:
    """Also if missing."""
    codec = Codec(_File, FileDescriptorProto)

    assert file == codec.from_wire(codec.to_wire(file))


@pytest.mark.parametrize("name", ["name", "package", "syntax", "java_package", "go_package"])
def test_a_codec_reads_every_rule_that_types_state(name: str) -> None:
    """Of optional and nested fields too, and of types in quotation marks."""
    codec = Codec(_File, FileDescriptorProto)
    message = codec.to_wire(_FULL)
    setattr(message.options if name.endswith("_package") else message, name, "long")

    with pytest.raises(WireError, match=f"{name} has 4 characters; it may have at most 3"):
        codec.from_wire(message)


@pytest.mark.parametrize("kind", [tuple[_Short, ...], _Short | int, Annotated[_Short, str]])
def test_rules_that_nobody_would_read_are_refused(kind: Any) -> None:
    """Rules inside a type, or of one type among several, and second rules."""
    with pytest.raises(TypeError, match="name of File states a rule that nobody would read"):
        Codec(make_dataclass("File", [("name", kind)]), FileDescriptorProto)


@pytest.mark.parametrize(
    ("error", "parsers"),
    [
        (KeyError, ({"nam": str}, {})),
        (KeyError, ({}, {"nam": str})),
        (TypeError, ({"name": str}, {})),
    ],
)
def test_names_of_no_field_and_second_parsers_are_refused(
    error: type[Exception], parsers: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> None:
    """When the codec is made."""
    with pytest.raises(error, match="File"):
        Codec(_File, FileDescriptorProto, *parsers)


@dataclass(frozen=True)
class _Spec:
    least: Annotated[int, whole(1, 9)] | None
    most: "Annotated[int, whole(1, 9)]"


def test_a_spec_keeps_rules_of_optional_fields_and_of_quoted_types() -> None:
    """None is valid for optional fields alone."""
    check_fields(_Spec(None, 9))

    for least, most, message in [
        (0, 9, "least is 0; it must lie between 1 and 9"),
        (None, 10, "most is 10; it must lie between 1 and 9"),
        (None, None, "most must be a whole number"),
    ]:
        with pytest.raises(TaskError, match=message):
            check_fields(_Spec(least, most))  # type: ignore[arg-type]  # None
