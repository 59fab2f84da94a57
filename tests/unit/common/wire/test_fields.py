from dataclasses import make_dataclass
from functools import partial
from typing import Annotated, Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from shuffledp.common.errors import WireError
from shuffledp.common.limits import parse_bounded
from shuffledp.common.task.specs import check_fields
from shuffledp.common.wire.fields import Codec

_Short = Annotated[str, partial(parse_bounded, length=3)]
_OPTIONS = make_dataclass("Options", [("go_package", _Short | None)])
_BOTH = make_dataclass("Both", [("name", _Short | None), ("options", _OPTIONS | None)])


def test_rules_of_optional_and_nested_fields_are_read() -> None:
    """By codecs, and by specs, which also keep None; what nobody would read is refused."""
    codec: Codec[Any, Any] = Codec(_BOTH, FileDescriptorProto)
    for name, package in [("long", None), (None, "long"), ("long", "a")]:
        with pytest.raises(WireError, match="has 4 characters; it may have at most 3"):
            codec.from_wire(codec.to_wire(_BOTH(name, _OPTIONS(package))))
    with pytest.raises(WireError, match="has 4 characters"):
        check_fields(_BOTH("long", None))
    check_fields(_BOTH(None, None))
    wrong: list[Any] = [(tuple[_Short, ...], {}), (_Short, {"name": str}), (str, {"nam": str})]
    for kind, parsers in wrong:
        with pytest.raises((TypeError, KeyError), match="File"):
            Codec(make_dataclass("File", [("name", kind)]), FileDescriptorProto, parsers)
