"""
Mutate valid examples into hostile inputs, as an attacker who knows the format would.

Blind changes (bits, lengths, splices) test a parser's first checks; changes that keep the format
valid (a task's number, a message's field) test the later ones. The given generator makes all
choices, so that a seed and a number identify an input.
"""

import json
import re
import struct
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Literal

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

Form = Literal["binary", "protobuf", "json", "canonical", "toml", "csv", "text"]
"""The syntax of a format; `canonical` is JSON in the canonical form of tasks."""

MAX_BYTES: Final = 1 << 17
"""Maximum length of an input; refusals by length alone have their own tests."""

_INTEGERS: Final = (
    *(0, 1, -1, 2, 3, 7, 13, 101, 255, 2**16, 2**20 + 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31),
    *(2**32 - 1, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400),
    -(2**63),
)
_FLOATS: Final = (
    *(0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 20.0, 20.5, 5e-324, 1e-300, 1e-16, 1e-15, 1e15, 1e300, 1e308),
    *(1.0000000001, float("inf"), float("-inf"), float("nan")),
)
_VALUES: Final[tuple[Any, ...]] = (
    *(*_INTEGERS, *_FLOATS, True, False, None),
    *([], {}, [[]], [1, 2, 3], {"a": 1}, ["a"]),
)
_TEXTS: Final = (
    *("", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u202e", "\ufeff", "é", "\U0001f9ee"),
    *("x" * 65, "x" * 257, "x" * 5000, "none", "../../x", "/dev/zero", "%s%n"),
    *("unix:", "unix:\0", ":0", "127.0.0.1:99999", "[::1]:0", "grr", "local-hashing", "fixed"),
    *("negative-binomial", "each-item", "geometric", "binomial", "od-hp", "sageo", "aue"),
    *("NaN", "Infinity", "-Infinity", "+inf", "-0", "1_000", "0x10", "1e", "--1", "1e309"),
    *("1e400,2", "9" * 4301, "\u0663", "\u00b2", "1,2", "1,2,3,4", "true", "null", '"', "'", "[]"),
    *("1970-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+23:00"),
)
_WORDS: Final = (*_TEXTS, *(str(number) for number in (*_INTEGERS, *_FLOATS)))
_RAW: Final = (
    *(b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\0", b"\xff" * 16, b"\\ud800"),
    *(b'"', b"\n", b"\r", b","),
)
_ORDERS: Final[tuple[Literal["big", "little"], ...]] = ("big", "little")
_LENGTHS: Final = (0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1024)


def mutated(rng: Random, seeds: Sequence[bytes], form: Form) -> bytes:
    """Return one hostile input: an example with one or several changes."""
    raw = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        change = _OF_FORM.get(form, _blind)
        if rng.random() < 0.35:  # about one in three is blind
            change = _blind
        raw = change(rng, raw, seeds)
    return raw[:MAX_BYTES]


def _blind(rng: Random, raw: bytes, seeds: Sequence[bytes]) -> bytes:
    """Flip bits, cut, splice, repeat, insert, replace all, or overwrite what may be a length."""
    start, other = rng.randrange(len(raw) + 1), rng.choice(seeds)
    before, behind = raw[:start], raw[start:]
    noise = rng.randbytes(rng.choice((*_LENGTHS, len(raw))))
    piece = behind[: rng.choice((1, 4, 16, 64, 1024))]
    size, order = rng.choice((2, 4, 8)), rng.choice(_ORDERS)
    most = 256**size - 1
    lies = (0, 1, most, most >> 1, (most >> 1) + 1, len(raw), rng.randrange(most))
    flipped = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8)) if raw else 0):
        flipped[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return rng.choice(
        (
            *(bytes(flipped), bytes(flipped), before, behind, noise),
            before + other[rng.randrange(len(other) + 1) :],
            (before + piece * rng.choice((2, 3, 100, 3000)))[:MAX_BYTES] + behind,
            before + rng.choice((*_RAW, noise)) + behind,
            before + min(rng.choice(lies), most).to_bytes(size, order) + behind[size:],
        )
    )


def _change_text(rng: Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """Replace, swap, quote or nest words and numbers; or repeat, drop or shuffle lines."""
    spans = [match.span() for match in re.finditer(rb"[-+._0-9A-Za-z]+", raw)] or [(0, 0)]
    (start, end), (other, other_end) = rng.choice(spans), rng.choice(spans)
    mark = rng.choice((b'"', b"'", b'"""', b"'''", b"[", b"#", b"\\u0000", b"\\x"))
    opening, closing = rng.choice(((b"[", b"]"), (b"{a=", b"}"), (b'{"a":', b"}"), (b"a.", b"")))
    depth = rng.choice((2, 50, 300, 300, 2000, 2000, 20_000))
    lines = raw.splitlines(keepends=True) or [b""]
    place = rng.randrange(len(lines))
    word = rng.choice(_WORDS).encode("utf-8", "surrogatepass")
    token = raw[start:end]
    instead = rng.choice(
        (
            *(word, word, word, raw[other:other_end]),
            mark + token + rng.choice((mark, b"")),
            opening * depth + token + closing * depth,
        )
    )
    changed = raw[:start] + instead + raw[end:]
    other_lines = [*lines[:place], *lines[place + 1 :]], [*lines, lines[place]], sorted(lines)
    return rng.choice((*[changed] * 6, *map(b"".join, other_lines)))


def _change_json(rng: Random, raw: bytes, seeds: Sequence[bytes], *, canonical: bool) -> bytes:
    """Change one value and encode it again; change invalid JSON as text."""
    try:
        holder = [json.loads(raw)]
        _change_inside(rng, holder)
        separators = (",", ":") if canonical else None
        written = json.dumps(holder[0], sort_keys=canonical, separators=separators)
    except (ValueError, TypeError, RecursionError):
        return _change_text(rng, raw, seeds)
    return written.encode("ascii")


def _change_inside(rng: Random, holder: Any) -> None:
    """Descend to a random place, and change the value there."""
    key: Any = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    inside = holder[key]
    if isinstance(inside, dict | list) and inside and rng.random() < 0.85:  # most changes go deep
        _change_inside(rng, inside)
        return
    near: dict[type, Callable[[], Any]] = {
        int: lambda: inside + rng.choice((-1, 1, 2**32, -(2**32))),
        float: lambda: inside * rng.choice((-1.0, 2.0, 1e-9, 1e9, 1 + 2**-52)),
        str: lambda: rng.choice(_TEXTS),
    }
    way = rng.randrange(10)
    if way == 0 and isinstance(holder, dict):
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[rng.choice((*_TEXTS, key + "x"))] = inside
    elif way == 1 and isinstance(holder, list):
        holder.insert(0, inside)
    elif way in {2, 3, 4} and type(inside) in near:
        holder[key] = near[type(inside)]()
    else:
        holder[key] = rng.choice(_VALUES)


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _change_message(rng: Random, raw: bytes, _: Sequence[bytes] = ()) -> bytes:
    """Drop, repeat, move, renumber, retype or change a field; add one if there is none."""
    parsed = _parsed(raw)
    if not parsed:
        parsed = [(rng.randrange(1, 26), _BYTES, rng.randbytes(rng.choice(_LENGTHS)))]
        return raw + _written(*parsed[0])
    fields = [_written(*field) for field in parsed]
    place = rng.randrange(len(fields))
    number, kind, data = parsed[place]
    field, other = fields.pop(place), rng.choice((_VARINT, _FIXED64, 3, 4, _FIXED32, 6, 7))
    ways = (
        *([], [field] * rng.choice((2, 3, 51))),
        [_written(rng.choice((0, number + 1, 2**29 - 1)), kind, data)],
        [_varint(number << 3 | other) + field[1:]],
        *[[_written(number, kind, _changed(rng, kind, data))]] * 4,
    )
    fields[place:place] = rng.choice(ways)
    if rng.random() < 0.1:  # fields may come in any order
        rng.shuffle(fields)
    return b"".join(fields)


def _parsed(raw: bytes) -> list[tuple[int, int, Any]]:
    """Parse a message into numbers, wire types and values; empty if invalid or with groups."""
    try:
        fields = UnknownFieldSet(Empty.FromString(raw))
    except DecodeError:
        return []
    each = (fields[place] for place in range(len(fields)))
    parsed = [(one.field_number, one.wire_type, one.data) for one in each]
    known = {_VARINT, _FIXED64, _BYTES, _FIXED32}
    return parsed if {kind for _, kind, _ in parsed} <= known else []


def _changed(rng: Random, kind: int, data: Any) -> Any:
    if kind == _VARINT:
        return rng.choice([*(value for value in _INTEGERS if 0 <= value < 2**64), 2**76])
    if kind == _FIXED64:
        return int.from_bytes(struct.pack("<d", rng.choice(_FLOATS)), "little")
    if kind == _FIXED32:
        return rng.getrandbits(32)
    if _parsed(data) and rng.random() < 0.6:  # or text that parses as a message
        return _change_message(rng, data)
    if data and len(data) % 8 == 0 and rng.random() < 0.3:  # packed doubles
        start = 8 * rng.randrange(len(data) // 8)
        return data[:start] + struct.pack("<d", rng.choice(_FLOATS)) + data[start + 8 :]
    length = rng.choice(_LENGTHS)
    others = (data[:-1], data + b"\0", b"\xff\xfe", b"\xed\xa0\x80", rng.randbytes(length))
    return rng.choice((b"", *others, b"x" * length))


def _written(number: int, kind: int, data: Any) -> bytes:
    body: bytes
    if kind == _VARINT:
        body = _varint(data)
    elif kind == _BYTES:
        body = _varint(len(data)) + data
    else:
        body = data.to_bytes(8 if kind == _FIXED64 else 4, "little")
    return _varint(number << 3 | kind) + body


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:  # seven bits per byte
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


_OF_FORM: Final[dict[Form, Callable[[Random, bytes, Sequence[bytes]], bytes]]] = {
    "protobuf": _change_message,
    "json": partial(_change_json, canonical=False),
    "canonical": partial(_change_json, canonical=True),
    **dict.fromkeys(("toml", "csv", "text"), _change_text),
}
