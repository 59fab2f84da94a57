"""The tasks of the transcripts, and the values that answer them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from shuffledp.common.messages.submission import Value
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.domain_spec import AttributeSpec, BreakdownSpec, EdgesSpec
from shuffledp.common.task.draft import NumberDraft, OpenDraft, PairDraft, TableDraft, TextDraft
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.shuffler_spec import (
    BinomialNoise,
    GeometricNoise,
    ItemNoise,
    ShufflerSpec,
)
from shuffledp.common.task.uniform_dummies import BinomialDummies, NegativeBinomialDummies

HIDDEN: Final = {"local_epsilon": math.inf}
"""Fields of a task whose reports have no noise of their own."""
_BREAKDOWN: Final = BreakdownSpec(attribute="country", groups=("DE", "FR"))


@dataclass(frozen=True, slots=True)
class Case:
    """A task to answer, and the values to answer it with; the last one does not fit."""

    protocol: str
    changes: Mapping[str, Any]
    values: tuple[Value, ...]
    refused: Value
    aes: bool = True
    every_twin: bool = False
    """Whether it has the failing twins that would be the same in every transcript."""
    checked_by_witnesses: bool = False
    """Whether a device without an accountant needs checking witnesses for the claim."""
    tokens: bool = False
    secret: bytes | None = None
    """The person's permanent secret, of a lasting question."""
    relay: ItemNoise | None = None
    """Noise of the second shuffler; None for a task with one."""


FIVE: Final = {"domain_size": 5}
_TEXT: Final = {"domain_size": 1, "local_epsilon": 0.0}
_HOURS: Final = NumberDraft(low=0.0, high=24.0)
_MARKS: Final = NumberDraft(low=1.0, high=5.0)
_NUMBER: Final = {"domain_size": 1, "numbers": _HOURS}
_VECTOR: Final = {"domain_size": 4, "numbers": _MARKS}
_NUMBERS: Final = ("1, 2.5, 4.75, 5", "3, 3, 3, 3")
_TOO_LARGE: Final = "1, 2, 3, 5.5"
_FLANKS: Final = GeometricNoise(peak=40, left_weight=2**29, right_weight=2**29, most=90)
_SLOPES: Final = GeometricNoise(peak=90, left_weight=3 * 2**28, right_weight=2**29, most=200)
_PARTS: Final = (
    AttributeSpec(name="country", labels=("DE", "FR")),
    AttributeSpec(name="shoes", labels=("n/a", "Füße", "2")),
    AttributeSpec(name="length", edges=EdgesSpec(low=0.0, high=8.0, buckets=4, outside="clip")),
)


def _digits(*radices: int) -> dict[str, Any]:
    return {**HIDDEN, "domain_size": 1, "numbers": dataclasses.replace(_HOURS, radices=radices)}


CASES: Final[Mapping[str, Case]] = {
    "ddps": Case("ddps", {"domain_size": 2, "local_epsilon": 1.0}, (0, 1), 2),
    "grr": Case("sh", FIVE, (0, 4), 5, every_twin=True),
    "mixdump": Case(
        "mixdump",
        {"labels": ("car", "bus", "bike", "Füße"), "domain_size": 4, "dummies_per_user": 1.5},
        ("bus", "  Fu\u0308ße", "#3", 0),
        "plane",
        tokens=True,
        aes=False,
        every_twin=True,
    ),
    "hashing": Case("murs", {"domain_size": 100, "buckets": 7, "local_epsilon": 3.0}, (0, 99), 100),
    "od-hp": Case(
        "od-hp",
        {
            "domain_size": 60,
            "buckets": 5,
            "dummies": BinomialDummies(per_user=1, trials=3, extra_weight=2**31),
            "local_epsilon": 16.0,
        },
        (0, 59, 17),
        60,
    ),
    "negative-binomial": Case(
        "od-hp",
        {
            "domain_size": 60,
            "buckets": 5,
            "dummies": NegativeBinomialDummies(per_user=0, trials=3, extra_weight=2**30, most=6),
        },
        (1, 2),
        -1,
        checked_by_witnesses=True,
    ),
    "fe1": Case(
        "fe1", {**HIDDEN, "domain_size": 100, "buckets": 7, "dummies_per_user": 9.0}, (5,), 100
    ),
    "symmetric-unary": Case("ldp-sue", {"domain_size": 9}, (0, 8), 9),
    "optimized-unary": Case("ldp-oue", {"domain_size": 8}, (0, 7), 8),
    "puredump": Case("puredump", {**HIDDEN, **FIVE, "dummies_per_user": 4.5}, (0, 4, 2), 5),
    "each-item": Case(
        "aue",
        {
            **HIDDEN,
            "domain_size": 12,
            "dummies": ItemDummies(trials=12, extra_weight=2**30, most=8),
        },
        (0, 11),
        12,
    ),
    "hierarchy": Case(
        "hierarchy",
        {
            **HIDDEN,
            "buckets": 3,
            "dummies_per_user": 30.5,
            "breakdown": _BREAKDOWN,
            "edges": EdgesSpec(low=0.0, high=8.0, buckets=8, unit="km", outside="clip"),
        },
        ("DE / 0", "FR/7.99", "FR / 1e3", "DE / -4"),
        "IT / 1",
        checked_by_witnesses=True,
    ),
    "tables": Case(
        "tables",
        {**_TEXT, "tables": TableDraft(attributes=_PARTS, margins=True), "dummies_per_user": 60.5},
        ("DE / n/a / 0", " FR / #1 / 7.99\n", "#0 / Fu\u0308ße / 1e3", "DE / Füße / -4"),
        "DE / Füße",
        checked_by_witnesses=True,
    ),
    "one-table": Case(
        "tables",
        {**_TEXT, "tables": TableDraft(attributes=_PARTS[1:]), "dummies_per_user": 6.0},
        ("n/a / 0", "Füße / 8"),
        "n/a / x",
    ),
    "geo-tables": Case(
        "geo-tables",
        {
            **_TEXT,
            "tables": TableDraft(attributes=_PARTS, tables=(("length", "country"), ("shoes",))),
            "noises": (_FLANKS, dataclasses.replace(_FLANKS, peak=80, most=130)),
        },
        ("DE / n/a / 0", "FR / Füße / 7"),
        "FR / Füße / 7 / 7",
        checked_by_witnesses=True,
    ),
    "edges": Case(
        "sh",
        {"edges": EdgesSpec(spacing="logarithmic", low=0.1, high=100.0, buckets=6), "n_min": 3000},
        (0.1, 100.0, "3.16", 0.31622776601683794),
        100.1,
    ),
    "breakdown": Case(
        "sh",
        {"labels": ("flu", "cold"), "domain_size": 2, "breakdown": _BREAKDOWN, "n_min": 3000},
        ("DE / cold", "FR/ flu", 3),
        "flu",
    ),
    "binomial-noise": Case(
        "sbin",
        {
            **HIDDEN,
            **FIVE,
            "shuffler": ShufflerSpec(keep_weight=2**31, noise=BinomialNoise(trials=400)),
        },
        (3,),
        5,
    ),
    "geometric-noise": Case(
        "sageo", {**HIDDEN, **FIVE, "shuffler": ShufflerSpec(noise=_FLANKS)}, (3,), 5
    ),
    "digits": Case(
        "digits",
        {**_digits(3, 2, 2), "dummies_per_user": 12.5},
        (7.5, "0", 24.0, " 1e1 "),
        24.5,
        checked_by_witnesses=True,
    ),
    "geo-digits": Case(
        "geo-digits",
        {**_digits(5, 4096), "noises": (_FLANKS, _SLOPES)},
        (7.1, 23.9),
        "seven",
        checked_by_witnesses=True,
    ),
    "vector-digits": Case(
        "vector-digits",
        {
            **HIDDEN,
            **_VECTOR,
            "numbers": dataclasses.replace(_MARKS, radices=(5, 3)),
            "dummies_per_user": 25.5,
        },
        _NUMBERS,
        _TOO_LARGE,
        checked_by_witnesses=True,
    ),
}
"""By the name of the file: protocols that the device for browsers answers."""
_CLUSTERS: Final = ClusterDummies(
    negative_weight=2,
    trials=2,
    clusters=((2, 1, 40), (1, 0, 20), (0, 1, 6), (3, 0, 3)),
    rooms=((1, 2**30, 2**31), (3, 2**31, 3 * 2**30)),
)


def _open(encoding: str, **more: Any) -> dict[str, Any]:  # of any type
    return {
        "domain_size": 1,
        "local_epsilon": 8.0,
        "open": OpenDraft(encoding=encoding, **{"code_bytes": 6} | more),
    }


OTHERS: Final[Mapping[str, Case]] = {
    "square-wave": Case(
        "ldp-sw", {"domain_size": 4, "local_epsilon": 1.5}, (0, 3, 1, 2, 0, 3, 1, 2), 4
    ),
    "string-hashing": Case(
        "ldp-olh-strings",
        {"labels": ("car", "bus", "Füße"), "domain_size": 3, "buckets": 4, "local_epsilon": 6.0},
        ("bus", 2, "car", 2, 2),
        "plane",
    ),
    "signed": Case(
        "signed", {**HIDDEN, "domain_size": 30, "dummies": _CLUSTERS}, (0, 29, 5, 6, 7, 8), 30
    ),
    "signed-grr": Case(
        "signed", {"local_epsilon": 4.0, "domain_size": 30, "dummies": _CLUSTERS}, (7, 8, 9, 10), -1
    ),
    "rappor": Case(
        "rappor",
        {**_TEXT, "texts": TextDraft(bits=32, cohorts=8)},
        ("Ohio", " Fu\u0308ße"),
        "x" * 65,
    ),
    "rappor-wide": Case(
        "rappor",
        {**_TEXT, "texts": TextDraft(bits=136, hashes=2, cohorts=4)},
        ("Ohio", "Utah", "Iowa"),
        "\ud800",
    ),
    "rappor-labels": Case(
        "rappor",
        {
            **_TEXT,
            "labels": ("car", "bus", "bike"),
            "domain_size": 3,
            "texts": TextDraft(unset=0.0, set=1.0),
        },
        ("bus", "bike"),
        "plane",
    ),
    "rappor-lasting": Case(
        "rappor",
        {**_TEXT, "population": "staff", "texts": TextDraft(bits=32, cohorts=8, question="state")},
        ("Ohio", "Ohio", "Utah"),
        7,
        secret=b"\x55" * 32,
    ),
    "discover": Case("discover", _open("text"), ("café", "x", "abc", "abcdef"), "longest"),
    "discover-code": Case("discover", _open("code", code_bytes=2), (4711, "65535"), 65536),
    "discover-hash": Case("discover", _open("hash", most_bytes=20), ("https://example.org",), ""),
    "discover-spell": Case(
        "discover",
        {
            **_open("spell", most_bytes=4),
            "domain_size": 2,
            "labels": tuple(sha256(text).hexdigest()[:12] for text in (b"ab", b"abcd")),
        },
        ("abcd", "ab", "none"),
        "abcde",
    ),
    "laplace": Case("laplace", _NUMBER, (7.5, 24.0), 24.5),
    "duchi": Case("duchi", _NUMBER, (7.5, "0"), "seven"),
    "piecewise": Case("piecewise", _NUMBER, (7.5, 0.0, 24.0), -0.5),
    "hybrid-mean": Case("hybrid-mean", _NUMBER, (7.5, 23.0, 11.0), 25.0),
    "harmony": Case("harmony", _VECTOR, _NUMBERS, _TOO_LARGE),
    "mean-est": Case("mean-est", _VECTOR, (*_NUMBERS, "1, 5, 1, 5"), "1, 2, 3"),
    "multi-hm": Case("multi-hm", {**_VECTOR, "local_epsilon": 10.0}, _NUMBERS, _TOO_LARGE),
    "multi-rphm": Case("multi-rphm", _VECTOR, _NUMBERS, _TOO_LARGE),
    "priv-kv": Case(
        "priv-kv",
        {"domain_size": 6, "pairs": PairDraft(low=0.0, high=5.0)},
        ("0:4.5, 5:0", "", "0:5,1:5,2:5,3:5,4:5,5:5"),
        "6:1",
    ),
    "priv-kv-fakes": Case(
        "priv-kv",
        {"domain_size": 2, "pairs": PairDraft(low=0.0, high=5.0, fakes=(1.25, 4.0))},
        ("1:5", "0:0"),
        "0:6",
    ),
}
"""Protocols that only the Python device answers; the device for browsers refuses them by name."""
_CHAIN: Final = {**HIDDEN, **FIVE, "shuffler_name": "first.example"}
CHAINS: Final[Mapping[str, Case]] = {
    "chain-sageo": Case(
        "sageo",
        {**_CHAIN, "shuffler": ShufflerSpec(noise=_FLANKS)},
        (3, 0),
        5,
        relay=GeometricNoise(peak=30, left_weight=2**29, right_weight=2**28, most=70),
    ),
    "chain-sbin": Case(
        "sbin",
        {**_CHAIN, "shuffler": ShufflerSpec(noise=BinomialNoise(trials=400))},
        (4,),
        -1,
        aes=False,
        relay=BinomialNoise(trials=300),
    ),
    "chain-geo-digits": Case(
        "geo-digits",
        {**_digits(3, 2), "shuffler_name": "first.example", "noises": (_FLANKS, _SLOPES)},
        (7.5,),
        24.5,
        checked_by_witnesses=True,
        relay=_SLOPES,
    ),
}
"""With two shufflers: the same fields, and those of the layers."""
CLAIMS: Final[Sequence[tuple[Case, dict[str, Any]]]] = (
    *((CHAINS[name], {}) for name in ("chain-sageo", "chain-sbin")),
    (CHAINS["chain-sageo"], {"central_epsilon": 1.25}),
    *((CHAINS["chain-sageo"], {"coalition_epsilon": each}) for each in (1.75, 2.0625, 3.0, 40.0)),
    (CHAINS["chain-sbin"], {"central_epsilon": 0.40625}),
    *((CHAINS["chain-sbin"], {"coalition_epsilon": each}) for each in (0.625, 1.0)),
)
"""Tasks with two shufflers, and claims in the place of those that they keep."""
ALL: Final = {**CASES, **OTHERS}
