"""A small task of every item protocol, with the most general dummies that it allows."""

from functools import cache
from typing import Any, Final

from shuffledp.analyzer.task_builder import with_claims, without_claim
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey
from shuffledp.common.protocols import protocol_named, protocols_of
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.shuffler_spec import BinomialNoise, GeometricNoise, ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.uniform_dummies import NegativeBinomialDummies
from tests.support.tasks import draft

ANALYZER_KEY: Final = HpkePrivateKey(DEFAULT_SUITE, b"\x01" * 32)
SHUFFLER_KEY: Final = HpkePrivateKey(DEFAULT_SUITE, b"\x02" * 32)

_ITEMS: Final = 30
_NONE: Final[dict[str, Any]] = {"local_epsilon": float("inf")}
_BINOMIAL: Final = ShufflerSpec(keep_weight=2**31, noise=BinomialNoise(trials=200))
_GEOMETRIC: Final = ShufflerSpec(
    noise=GeometricNoise(peak=20, left_weight=2**29, right_weight=2**29, most=60)
)
_CLUSTERS: Final = ClusterDummies(
    negative_weight=2,
    trials=2,
    clusters=((2, 1, 40), (1, 0, 20), (0, 1, 6), (3, 0, 3)),
    rooms=((1, 2**30, 2**31), (3, 2**31, 3 * 2**30)),
)
_OWN: Final[dict[str, dict[str, Any]]] = {
    "murs": {"buckets": 7},
    "hp-sdp": {"buckets": 7},
    "aue": {**_NONE, "dummies": ItemDummies(trials=_ITEMS, extra_weight=2**28, most=8)},
    "signed": {**_NONE, "dummies": _CLUSTERS},
    "puredump": {**_NONE, "dummies_per_user": 3.5},
    "mixdump": {"dummies_per_user": 1.5},
    "od-hp": {
        "buckets": 7,
        "dummies": NegativeBinomialDummies(per_user=1, trials=4, extra_weight=2**30, most=9),
    },
    "hierarchy": {
        **_NONE,
        "buckets": 4,
        "dummies_per_user": 12.5,
        "domain_size": 1,
        "labels": (),
        "edges": EdgesSpec(low=0.0, high=float(_ITEMS), buckets=_ITEMS),
    },
    "fe1": {**_NONE, "buckets": 7, "dummies_per_user": 3.5},
    "sbin": {**_NONE, "shuffler": _BINOMIAL},
    "sageo": {**_NONE, "shuffler": _GEOMETRIC},
    "hybrid": {"shuffler": _GEOMETRIC},
}
"""Fields of each protocol's draft."""


ITEM_PROTOCOLS: Final = (*protocols_of("categorical"), "hierarchy")


@cache
def protocol_task(name: str, **changes: Any) -> Task:
    """Return a protocol's small task, with some fields of its draft changed."""
    return with_claims(unclaimed_task(name, **changes))


def unclaimed_task(name: str, **changes: Any) -> Task:
    """Return the same without claims, which take up to a second."""
    items = 2 if protocol_named(name).domain == "binary" else _ITEMS
    fields: dict[str, Any] = {
        "buckets": 0,
        "dummies_per_user": 0.0,
        "domain_size": items,
        "labels": tuple(f"item {item}" for item in range(items)),
        "n_min": 1000,
        "target_size": 5000,
    }
    wanted = draft(
        SHUFFLER_KEY.public_key().raw, protocol=name, **fields | _OWN.get(name, {}) | changes
    )
    key = ANALYZER_KEY.public_key().raw
    return without_claim(wanted, analyzer_key=key, nonce=bytes(range(32)))
