"""
What a batch must not carry past the shuffler, planted so that it can be searched for.

All is drawn from a seed that can be given from outside, SHUFFLEDP_MARKERS_SEED, so that nobody can
have written code that avoids these very markers.
"""

import base64
import os
import time
from dataclasses import dataclass
from random import Random
from typing import Final, Self

DEFAULT_SEED: Final = 20261121
SEED_VARIABLE: Final = "SHUFFLEDP_MARKERS_SEED"
ITEMS: Final = 32_000
"""Of the domain that values are planted in."""

_SYLLABLES: Final = ("qua", "zor", "mbe", "xyl", "ptu", "kvi", "gno", "whe", "jyr", "dzi", "fru")


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """Planted values, names, labels, addresses and trace headers."""

    seed: int
    values: tuple[int, ...]
    """Items of a large domain; below every port that a system gives out by itself."""
    labels: tuple[str, ...]
    persons: tuple[str, ...]
    addresses: tuple[str, ...]
    """Of loopback; each a client's own."""
    headers: tuple[tuple[tuple[str, str | bytes], ...], ...]
    """What tracing libraries and gateways send along: one set of headers a user."""

    @classmethod
    def drawn(cls, users: int) -> Self:
        """Draw them from the seed that the environment names, or the usual one."""
        seed = int(os.environ.get(SEED_VARIABLE, DEFAULT_SEED))
        rng = Random(seed)  # noqa: S311  # not a secret
        return cls(
            seed=seed,
            values=tuple(sorted(rng.sample(range(10_001, ITEMS), 5))),
            labels=tuple(f"label {_word(rng)}" for _ in range(6)),
            persons=tuple(f"{_word(rng)} {_word(rng)}" for _ in range(4)),
            addresses=tuple(
                f"127.{rng.randrange(64, 127)}.{rng.randrange(100, 255)}.{rng.randrange(100, 255)}"
                for _ in range(12)
            ),
            headers=tuple(_headers(rng) for _ in range(users)),
        )


def _word(rng: Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(5)).capitalize()


def _headers(rng: Random) -> tuple[tuple[str, str | bytes], ...]:
    trace, span = rng.randbytes(16), rng.randbytes(8)
    return (
        ("traceparent", f"00-{trace.hex()}-{span.hex()}-01"),
        ("tracestate", f"vendor={_word(rng)}"),
        ("baggage", f"user={_word(rng)},session={rng.randbytes(8).hex()}"),
        ("x-request-id", f"{_word(rng)}-{rng.randbytes(8).hex()}"),
        ("x-forwarded-for", f"203.0.{rng.randrange(100, 255)}.{rng.randrange(100, 255)}"),
        ("grpc-trace-bin", b"\0\0" + trace + b"\1" + span + b"\2\1"),
    )


def header_patterns(headers: tuple[tuple[str, str | bytes], ...]) -> list[bytes]:
    """Return what each header could leave behind: itself, its ids as text and as bytes."""
    found: list[bytes] = []
    for name, value in headers:
        if isinstance(value, bytes):
            found += [value, base64.b64encode(value).rstrip(b"=")]
            continue
        found.append(value.encode())
        if name == "traceparent":
            _, trace, span, _ = value.split("-")
            for part in (trace, span):
                found += [part.encode(), bytes.fromhex(part)]
        if name in {"tracestate", "baggage"}:
            found += [part.partition("=")[2].encode() for part in value.split(",")]
    return found


def id_patterns(identifier: bytes) -> list[bytes]:
    """Return the ways in which an id may be written: raw, hexadecimal, base64."""
    return [identifier, identifier.hex().encode(), base64.b64encode(identifier).rstrip(b"=")]


def time_patterns(begun: float, ended: float) -> list[bytes]:
    """
    Return the ways in which a moment of the run may be written.

    Seconds as text are also what milliseconds, micro- and nanoseconds as text begin with. As eight
    bytes: seconds, and the six that milliseconds of a minute share. What needs fewer bytes is
    searched for where there is no ciphertext, by `short_time_patterns`.
    """
    found: set[bytes] = set()
    for second in range(int(begun) - 1, int(ended) + 2):
        found.add(str(second).encode())
        for order in ("big", "little"):
            found.add(second.to_bytes(8, order))
            found.add(second.to_bytes(8, "big")[2:] if order == "big" else b"")
        found.add((second * 1000).to_bytes(8, "big")[:6])
        found.add((second * 1000).to_bytes(8, "little")[2:])
        for moment in (time.gmtime(second), time.localtime(second)):
            for layout in (
                "%Y-%m-%dT%H:%M",
                "%Y-%m-%d %H:%M",
                "%H:%M:%S",
                "%Y%m%d%H%M",
                "%y%m%d%H%M%SZ",
            ):
                found.add(time.strftime(layout, moment).encode())
    return sorted(found - {b""})


def short_time_patterns(begun: float, ended: float) -> list[bytes]:
    """Return moments as four bytes: for places without ciphertexts, where chance would find any."""
    return [
        second.to_bytes(4, order)
        for second in range(int(begun) - 1, int(ended) + 2)
        for order in ("big", "little")
    ]
