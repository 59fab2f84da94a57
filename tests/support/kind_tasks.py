"""A small task of every kind except items, and valid values."""

import dataclasses
from functools import cache
from typing import Any, Final

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.messages.submission import Value
from shuffledp.common.protocols import Kind, protocol_named, protocols_of
from shuffledp.common.task.domain_spec import AttributeSpec, EdgesSpec
from shuffledp.common.task.draft import NumberDraft, OpenDraft, PairDraft, TableDraft, TextDraft
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.common.task.task import Task
from tests.support.protocol_tasks import ANALYZER_KEY, SHUFFLER_KEY
from tests.support.tasks import draft

OTHER_KINDS: Final[tuple[Kind, ...]] = ("string", "open", "mean", "vector", "key-value", "table")


def noisy_protocols(kind: Kind) -> tuple[str, ...]:
    """Return the protocols for a kind of value whose reports have local noise."""
    return tuple(name for name in protocols_of(kind) if not protocol_named(name).noiseless)


NOISY_KINDS: Final = tuple(kind for kind in OTHER_KINDS if noisy_protocols(kind))
OF_OTHER_KINDS: Final = tuple(name for kind in OTHER_KINDS for name in protocols_of(kind))

ATTRIBUTES: Final = (
    AttributeSpec(name="illness", labels=("none", "flu", "cold")),
    AttributeSpec(name="age", edges=EdgesSpec(low=0.0, high=90.0, buckets=3, unit="years")),
    AttributeSpec(name="smokes", labels=("no", "yes")),
)
_GEOMETRIC: Final = GeometricNoise(peak=40, left_weight=2**29, right_weight=2**29, most=120)
_FIELDS: Final[dict[Kind, dict[str, Any]]] = {
    "string": {"local_epsilon": 0.0, "domain_size": 1, "texts": TextDraft(bits=32, cohorts=8)},
    "open": {"domain_size": 1, "open": OpenDraft(code_bytes=6)},
    "mean": {"domain_size": 1, "numbers": NumberDraft(low=0.0, high=24.0)},
    "vector": {"domain_size": 5, "numbers": NumberDraft(low=1.0, high=5.0)},
    "key-value": {"domain_size": 6, "pairs": PairDraft(low=0.0, high=5.0)},
    "table": {"local_epsilon": 0.0, "domain_size": 1, "tables": TableDraft(attributes=ATTRIBUTES)},
}
_HIDDEN: Final[dict[str, Any]] = {"local_epsilon": 0.0, "radices": (3, 2)}
_NOISE: Final = GeometricNoise(peak=150, left_weight=7 * 2**27, right_weight=7 * 2**27, most=320)
_OWN: Final[dict[str, dict[str, Any]]] = {
    "digits": {**_HIDDEN, "dummies_per_user": 2.5},
    "geo-digits": {**_HIDDEN, "shuffler": ShufflerSpec(noise=_NOISE)},
    "vector-digits": {**_HIDDEN, "dummies_per_user": 7.5},
    "geo-vector-digits": {**_HIDDEN, "shuffler": ShufflerSpec(noise=_NOISE)},
    "tables": {"dummies_per_user": 12.5},
    "geo-tables": {"shuffler": ShufflerSpec(noise=_GEOMETRIC)},
}
"""Fields of protocols that hide true answers in several views."""
VALUES: Final[dict[Kind, Value]] = {
    "string": "Ohio",
    "open": "café",
    "mean": 7.5,
    "vector": (1.0, 2.0, 3.0, 4.5, 5.0),
    "key-value": {0: 4.5, 5: 0.0},
    "table": "flu / 37 / no",
}
"""A valid value of each kind."""


def kind_draft_fields(protocol: str, **changes: Any) -> dict[str, Any]:
    """Return the fields of a protocol's draft that others lack or set differently."""
    own = _FIELDS[protocol_named(protocol).kind] | _OWN.get(protocol, {})
    if "noises" in changes:
        own.pop("shuffler")
    if radices := own.pop("radices", ()):
        own["numbers"] = dataclasses.replace(own["numbers"], radices=radices)
    return {
        "protocol": protocol,
        "buckets": 0,
        "dummies_per_user": 0.0,
        "labels": (),
        **own,
        **changes,
    }


@cache
def kind_task(protocol: str, **changes: Any) -> Task:
    """Return a small task of a protocol for a kind other than items."""
    fields = {"n_min": 1000, "target_size": 5000, **kind_draft_fields(protocol, **changes)}
    wanted = draft(SHUFFLER_KEY.public_key().raw, **fields)
    key = ANALYZER_KEY.public_key().raw
    return complete(wanted, analyzer_key=key, nonce=bytes(range(32)))


def lasting_task(**changes: Any) -> Task:
    """Return a small RAPPOR task whose question its population may be asked again."""
    texts = TextDraft(bits=32, cohorts=8, question="state")
    return kind_task("rappor", **{"population": "staff", "texts": texts, **changes})
