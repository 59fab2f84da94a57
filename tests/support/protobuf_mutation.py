"""Hostile protocol buffers: fields left out, doubled, moved, too long, of another type."""

import struct
from random import Random
from typing import Final

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOATS: Final = (
    *(0.0, -0.0, 1.0, 0.5, -1.0, 5e-324, 1e-16, 1e308, 20.0, 20.5),
    *(float("inf"), float("-inf"), float("nan")),
)
_WHOLE: Final = (
    0,
    1,
    2,
    3,
    13,
    100,
    2**20,
    2**24,
    2**24 + 1,
    2**31,
    2**32,
    2**53,
    2**63,
    2**64 - 1,
)
_LENGTHS: Final = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 257, 1024)

Field = tuple[int, int, bytes]


def mutate_message(rng: Random, raw: bytes) -> bytes:
    """Change one field; what is no message any more gets a bit flipped."""
    fields = _fields(raw)
    if not fields:
        return raw + _written(rng.randrange(1, 26), _BYTES, rng.randbytes(rng.choice(_LENGTHS)))
    place = rng.randrange(len(fields))
    number, kind, payload = fields[place]
    way = rng.randrange(9)
    if way == 0:
        del fields[place]
    elif way == 1:
        fields[place:place] = [fields[place]] * rng.choice((1, 2, 50))
    elif way == 2:  # one of nine ways
        rng.shuffle(fields)
    elif way == 3:
        fields[place] = (rng.choice((0, number + 1, 2**29 - 1)), kind, payload)
    elif way == 4:
        fields[place] = (number, rng.choice((_VARINT, _FIXED64, 3, 4, _FIXED32, 6, 7)), payload)
    else:
        fields[place] = (number, kind, _changed(rng, kind, payload))
    return b"".join(_written(*field) for field in fields)


def _changed(rng: Random, kind: int, payload: bytes) -> bytes:
    if kind == _VARINT:
        return _varint(rng.choice(_WHOLE)) if rng.random() < 0.9 else b"\xff" * 11
    if kind == _FIXED64:
        return struct.pack("<d", rng.choice(_FLOATS))
    if kind == _FIXED32:
        return rng.randbytes(4)
    inner = _fields(payload)
    if inner and rng.random() < 0.6:  # it may be text that looks like a message
        return mutate_message(rng, payload)
    if payload and len(payload) % 8 == 0 and rng.random() < 0.3:  # packed doubles
        start = 8 * rng.randrange(len(payload) // 8)
        return payload[:start] + struct.pack("<d", rng.choice(_FLOATS)) + payload[start + 8 :]
    return rng.choice(
        (
            b"",
            payload[:-1],
            payload + b"\0",
            b"\xff\xfe",
            b"\xed\xa0\x80",
            rng.randbytes(rng.choice(_LENGTHS)),
            b"x" * rng.choice(_LENGTHS),
        )
    )


def _fields(raw: bytes) -> list[Field]:
    """Take a message apart; nothing if it is none."""
    fields, place = [], 0
    try:
        while place < len(raw):
            tag, place = _read_varint(raw, place)
            number, kind = tag >> 3, tag & 7
            start = place
            if kind == _VARINT:
                _, place = _read_varint(raw, place)
            elif kind == _BYTES:
                size, start = _read_varint(raw, place)
                place = start + size
            elif kind in {_FIXED64, _FIXED32}:
                place += 8 if kind == _FIXED64 else 4
            else:
                return []
            if place > len(raw) or number == 0:
                return []
            fields.append((number, kind, raw[start:place]))
    except IndexError:
        return []
    return fields


def _read_varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:  # the last byte of a varint
            return value, place


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:  # seven bits a byte
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _written(number: int, kind: int, payload: bytes) -> bytes:
    tag = _varint(number << 3 | kind)
    return tag + (_varint(len(payload)) if kind == _BYTES else b"") + payload
