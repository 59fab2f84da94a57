"""
Hostile variants of valid examples, as an attacker who knows the format would send them.

Blind changes (bits, lengths, splices) reach a parser's first checks; changes that keep the format
whole (a number of a task, a field of a message) reach those behind. Everything is drawn from the
generator that is passed in, so that a seed and a number name an input for good.
"""

import json
import re
import struct
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Literal

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

Form = Literal["binary", "protobuf", "json", "canonical", "toml", "csv", "text"]
"""How a format is laid out; `canonical` is JSON in the one form that a task has."""

MAX_BYTES: Final = 1 << 17
"""Longest input that is made; what is refused by its length alone has tests of its own."""

_INTERESTING: Final = (0, 1, 2, 16, 31, 32, 33, 64, 127, 128, 255)
_NUMBERS: Final = (
    *("0", "-0", "1", "-1", "2", "0.0", "-0.0", "0.5", "1.0", "1e-320", "1e308", "1e309", "-1e999"),
    *("NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "+inf", "1_000", "0x10", "1e", "--1"),
    *("255", "65536", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808"),
    *("18446744073709551615", "18446744073709551616", "9" * 40, "9" * 400, "9" * 4301, "1" * 19),
    *("2147483647", "16777216", "16777217", "1048577", "3", "7", "13", "101", "true", "null"),
    *("\u0663", "\u00b2", "1,2", "1,2,3,4", "1e400,2", "1970-01-01T00:00:00Z", '"', "'", "[]"),
    *("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00Z"),
)
_TEXTS: Final = (
    *("", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u202e", "\ufeff", "é", "\U0001f9ee"),
    *("x" * 65, "x" * 257, "x" * 5000, "inf", "nan", "none", "../../x", "/dev/zero", "%s%n"),
    *("unix:", "unix:\0", ":0", "127.0.0.1:99999", "[::1]:0", "grr", "local-hashing", "fixed"),
    *("negative-binomial", "each-item", "geometric", "binomial", "od-hp", "sageo", "aue"),
)
_VALUES: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 2, 3, 7, 255, 2**16, 2**24, 2**24 + 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1),
    *(2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, -(2**63), True, False, None),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 5e-324, 1e-15, 1e-300, 1e15, 1e300, 1e308, 1.0000000001),
    *(float("inf"), float("-inf"), float("nan"), [], {}, [[]], [1, 2, 3], {"a": 1}, ["a"]),
)
_RAW: Final = (
    *(b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\0", b"\xff" * 16, b"\\ud800"),
    *(b'"', b"\n", b"\r", b","),
)
_FLOATS: Final = (
    *(0.0, -0.0, 1.0, 0.5, -1.0, 5e-324, 1e-16, 1e308, 20.0, 20.5),
    *(float("inf"), float("-inf"), float("nan")),
)
_WHOLE: Final = (
    *(0, 1, 2, 3, 13, 100, 2**20, 2**24, 2**24 + 1, 2**31, 2**32, 2**53, 2**63, 2**64 - 1),
)
_LENGTHS: Final = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 257, 1024)


def mutated(rng: Random, seeds: Sequence[bytes], form: Form) -> bytes:
    """Return one hostile input: an example with one or several changes."""
    raw = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        raw = _change(rng, raw, seeds, form)
    return raw[:MAX_BYTES]


def _change(rng: Random, raw: bytes, seeds: Sequence[bytes], form: Form) -> bytes:
    if rng.random() < 0.35:  # about one in three is blind
        return rng.choice(_BLIND)(rng, raw, seeds)
    if form == "protobuf":
        return _change_message(rng, raw)
    if form in {"json", "canonical"}:
        return _change_json(rng, raw, canonical=form == "canonical")
    if form in {"toml", "csv", "text"}:
        return rng.choice(_TEXTUAL)(rng, raw)
    return rng.choice(_BLIND)(rng, raw, seeds)


# --- blind ---------------------------------------------------------------------------------------


def _place(rng: Random, raw: bytes) -> int:
    return rng.randrange(len(raw) + 1)


def _flip(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(raw)
    for _bit in range(rng.choice((1, 1, 2, 8)) if raw else 0):
        changed[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    return raw[: _place(rng, raw)]


def _behead(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    return raw[_place(rng, raw) :]


def _splice(rng: Random, raw: bytes, seeds: Sequence[bytes]) -> bytes:
    other = rng.choice(seeds)
    return raw[: _place(rng, raw)] + other[_place(rng, other) :]


def _repeat(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    start = _place(rng, raw)
    piece = raw[start : start + rng.choice((1, 4, 16, 64, 1024))]
    return (raw[:start] + piece * rng.choice((2, 3, 100, 3000)))[:MAX_BYTES] + raw[start:]


def _insert(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    start = _place(rng, raw)
    return raw[:start] + rng.choice((*_RAW, rng.randbytes(rng.choice(_INTERESTING)))) + raw[start:]


def _noise(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    return rng.randbytes(rng.choice((*_INTERESTING, len(raw))))


def _length(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """Overwrite what may be a length field by one that lies."""
    layout = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
    size = struct.calcsize(layout)
    if len(raw) < size:
        return raw
    most = 256**size - 1
    value = rng.choice((0, 1, most, most >> 1, (most >> 1) + 1, len(raw), rng.randrange(most)))
    start = rng.randrange(len(raw) - size + 1)
    return raw[:start] + struct.pack(layout, min(value, most)) + raw[start + size :]


_BLIND: Final = (_flip, _flip, _truncate, _behead, _splice, _repeat, _insert, _noise, _length)


# --- text ----------------------------------------------------------------------------------------


_TOKEN: Final = re.compile(rb"[-+._0-9A-Za-z]+")


def _tokens(raw: bytes) -> list[tuple[int, int]]:
    """Find words and numbers; without any, the start."""
    return [match.span() for match in _TOKEN.finditer(raw)] or [(0, 0)]


def _replace_token(rng: Random, raw: bytes) -> bytes:
    start, end = rng.choice(_tokens(raw))
    text = rng.choice((*_NUMBERS, *_TEXTS))
    return raw[:start] + text.encode("utf-8", "surrogatepass") + raw[end:]


def _swap_tokens(rng: Random, raw: bytes) -> bytes:
    (start, end), (other, other_end) = rng.choice(_tokens(raw)), rng.choice(_tokens(raw))
    return raw[:start] + raw[other:other_end] + raw[end:]


def _quote(rng: Random, raw: bytes) -> bytes:
    start, end = rng.choice(_tokens(raw))
    mark = rng.choice((b'"', b"'", b'"""', b"'''", b"[", b"#", b"\\u0000", b"\\x"))
    return raw[:start] + mark + raw[start:end] + rng.choice((mark, b"")) + raw[end:]


def _nest(rng: Random, raw: bytes) -> bytes:
    opening, closing = rng.choice(((b"[", b"]"), (b"{a=", b"}"), (b'{"a":', b"}"), (b"a.", b"")))
    depth = rng.choice((2, 50, 300, 300, 2000, 2000, 20_000))
    start = _place(rng, raw)
    middle = raw[start : start + 8]
    return raw[:start] + opening * depth + middle + closing * depth + raw[start + 8 :]


def _lines(rng: Random, raw: bytes) -> bytes:
    """Repeat a line, leave one out, or shuffle them."""
    lines = raw.splitlines(keepends=True) or [b""]
    place, way = rng.randrange(len(lines)), rng.randrange(3)
    if way == 0:
        lines.insert(rng.randrange(len(lines) + 1), lines[place])
    elif way == 1:
        del lines[place]
    else:
        rng.shuffle(lines)
    return b"".join(lines)


_TEXTUAL: Final = (*[_replace_token] * 3, _swap_tokens, _lines, _quote, _nest)


# --- JSON ----------------------------------------------------------------------------------------


def _change_json(rng: Random, raw: bytes, *, canonical: bool) -> bytes:
    """Change one value and write it again; where it is no JSON any more, change it as text."""
    try:
        value = json.loads(raw)
        holder = [value]
        _change_inside(rng, holder)
        separators = (",", ":") if canonical else None
        written = json.dumps(holder[0], sort_keys=canonical, separators=separators)
    except (ValueError, TypeError, RecursionError):
        return rng.choice(_TEXTUAL)(rng, raw)
    return written.encode("ascii")


def _change_inside(rng: Random, holder: Any) -> None:
    """Walk down to a random place, and change what stands there."""
    key: Any = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    inside = holder[key]
    if isinstance(inside, dict | list) and inside and rng.random() < 0.85:  # most changes go deep
        _change_inside(rng, inside)
        return
    way = rng.randrange(10)
    if way == 0 and isinstance(holder, dict):
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[rng.choice((*_TEXTS, key + "x"))] = inside
    elif way == 2 and isinstance(holder, list):  # one of ten ways
        holder.insert(0, inside)
    elif way in {3, 4} and type(inside) is int:
        holder[key] = inside + rng.choice((-1, 1, 2**32, -(2**32)))
    elif way in {3, 4} and type(inside) is float:
        holder[key] = inside * rng.choice((-1.0, 2.0, 1e-9, 1e9, 1 + 2**-52))
    elif way in {3, 4, 5} and isinstance(inside, str):
        holder[key] = rng.choice(_TEXTS)
    else:
        holder[key] = rng.choice(_VALUES)


# --- protocol buffers ----------------------------------------------------------------------------

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, bytes]
"""Number, wire type, and the bytes after the tag."""


def _change_message(rng: Random, raw: bytes) -> bytes:
    """Leave out, repeat, move, renumber, retype or change a field; without one, add one."""
    parsed = _parsed(raw)
    if not parsed:
        added = rng.randbytes(rng.choice(_LENGTHS))
        return raw + _tagged(rng.randrange(1, 26), _BYTES, _counted(added))
    fields = [(number, kind, _body(kind, data)) for number, kind, data in parsed]
    place = rng.randrange(len(fields))
    number, kind, body = fields[place]
    way = rng.randrange(9)
    if way == 0:
        del fields[place]
    elif way == 1:
        fields[place:place] = [fields[place]] * rng.choice((1, 2, 50))
    elif way == 2:  # one of nine ways
        rng.shuffle(fields)
    elif way == 3:
        fields[place] = (rng.choice((0, number + 1, 2**29 - 1)), kind, body)
    elif way == 4:
        fields[place] = (number, rng.choice((_VARINT, _FIXED64, 3, 4, _FIXED32, 6, 7)), body)
    else:
        fields[place] = (number, kind, _changed(rng, kind, parsed[place][2]))
    return b"".join(_tagged(*field) for field in fields)


def _parsed(raw: bytes) -> list[tuple[int, int, Any]]:
    """Take a message apart; return nothing of what is none, or has groups."""
    try:
        fields = UnknownFieldSet(Empty.FromString(raw))
    except DecodeError:
        return []
    each = (fields[place] for place in range(len(fields)))
    parsed = [(one.field_number, one.wire_type, one.data) for one in each]
    known = {_VARINT, _FIXED64, _BYTES, _FIXED32}
    return parsed if {kind for _, kind, _ in parsed} <= known else []


def _changed(rng: Random, kind: int, data: Any) -> bytes:
    if kind == _VARINT:
        return _varint(rng.choice(_WHOLE)) if rng.random() < 0.9 else b"\xff" * 11
    if kind == _FIXED64:
        return struct.pack("<d", rng.choice(_FLOATS))
    if kind == _FIXED32:
        return rng.randbytes(4)
    if _parsed(data) and rng.random() < 0.6:  # it may be text that looks like a message
        return _counted(_change_message(rng, data))
    if data and len(data) % 8 == 0 and rng.random() < 0.3:  # packed doubles
        start = 8 * rng.randrange(len(data) // 8)
        number = struct.pack("<d", rng.choice(_FLOATS))
        return _counted(data[:start] + number + data[start + 8 :])
    length = rng.choice(_LENGTHS)
    others = (data[:-1], data + b"\0", b"\xff\xfe", b"\xed\xa0\x80", rng.randbytes(length))
    return _counted(rng.choice((b"", *others, b"x" * length)))


def _body(kind: int, data: Any) -> bytes:
    if kind == _VARINT:
        return _varint(data)
    return (
        _counted(data) if kind == _BYTES else data.to_bytes(8 if kind == _FIXED64 else 4, "little")
    )


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:  # seven bits a byte
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _counted(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _tagged(number: int, kind: int, body: bytes) -> bytes:
    return _varint(number << 3 | kind) + body
