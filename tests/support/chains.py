"""Tasks with two shufflers."""

import math
from typing import Any, Final

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey
from shuffledp.common.crypto.signing import KeyUse, SigningIdentity
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.shuffler_spec import BinomialNoise, GeometricNoise, ShufflerSpec
from tests.support.keys import signed_key

RELAY: Final = SigningIdentity(bytes(31) + b"\x02")
"""The identity of relays without a state directory."""
FLANKS: Final = GeometricNoise(peak=25, left_weight=2**29, right_weight=2**29, most=50)
COINS: Final = BinomialNoise(trials=200)


def chain(
    first: GeometricNoise | BinomialNoise = FLANKS,
    second: GeometricNoise | BinomialNoise | None = None,
    *,
    relay_key: HpkePrivateKey | None = None,
) -> dict[str, Any]:
    """Return the fields of a draft with two shufflers; by default both have the same noise."""
    key = relay_key or HpkePrivateKey.generate(DEFAULT_SUITE)
    return {
        "protocol": "sbin" if isinstance(first, BinomialNoise) else "sageo",
        "local_epsilon": math.inf,
        "dummies_per_user": 0,
        "buckets": 0,
        "shuffler_name": "first.example",
        "shuffler": ShufflerSpec(noise=first),
        "relay": RelayDraft(
            name="second.example",
            key=signed_key(key.public_key(), RELAY, KeyUse.LAYERS),
            noise=second or first,
        ),
    }
