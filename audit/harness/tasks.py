"""Sample tasks, and reduced drafts of an audited task."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.accounting.guarantees import claimed_guarantee
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.crypto.hpke import HpkePrivateKey
from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.task import shuffler_spec
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.draft import RelayDraft, TaskDraft
from shuffledp.common.task.named_dummies import ItemDummies, ViewDummies
from shuffledp.common.task.specs import hierarchy_sizes
from shuffledp.common.task.task import NONCE_BYTES, Task
from shuffledp.common.task.uniform_dummies import FixedDummies
from shuffledp.lab.planning.requirements import UNUSED_KEY

FAR_FUTURE: Final = 4_000_000_000
_DELTA: Final = 0.5
"""δ of a reduced task, large enough for a finite guarantee with a few dozen users."""
_MAX_EPSILON: Final = 100.0
_MAX_ITEMS: Final = 32
_FEW_ITEMS: Final = 4
"""Maximum with two shufflers, which both add dummies of each item."""
_MAX_BUCKETS: Final = 7
_MAX_DUMMIES: Final = 8
_FEW_CLUSTERS: Final = ClusterDummies(
    negative_weight=2,
    trials=4,
    clusters=((2, 1, 40), (1, 0, 20), (0, 1, 6), (3, 0, 3)),
    rooms=((1, 2**30, 2**31), (3, 2**31, 3 * 2**30)),
)
"""Small clusters from which every user sends some, for tasks whose own would hide nobody."""


def sample_draft(**fields: Any) -> TaskDraft:  # noqa: ANN401  # fields of a draft
    """Create a draft from some of its fields; default labels name the items."""
    plain: dict[str, Any] = {
        "labels": tuple(f"item {item}" for item in range(fields["domain_size"])),
        "delta": 1e-6,
        "n_min": 100_000,
        "target_size": 100_000,
        "deadline": FAR_FUTURE,
        "shuffler_key": UNUSED_KEY,
    }
    return TaskDraft(**plain | fields)


def sample_task(**fields: Any) -> Task:  # noqa: ANN401  # fields of a draft
    """Create a task from some fields of its draft, under throwaway keys."""
    return complete(
        sample_draft(**fields), analyzer_key=UNUSED_KEY, nonce=bytes(range(NONCE_BYTES))
    )


def sample_chain() -> Task:
    """Return a task with two shufflers that each add the same noise."""
    weight = int(shuffler_spec.RATIO_SUM * math.exp(-1 / 2))
    noise = shuffler_spec.GeometricNoise(peak=30, left_weight=weight, right_weight=weight, most=60)
    key = HpkePrivateKey.generate().public_key().raw
    return sample_task(
        protocol="sageo",
        domain_size=26,
        local_epsilon=math.inf,
        shuffler=shuffler_spec.ShufflerSpec(noise=noise),
        shuffler_name="first.example",
        relay=RelayDraft(name="second.example", key=key, noise=noise),
    )


def with_shufflers(task: Task, *changes: Mapping[str, Any]) -> Task:
    """Return a task with some fields of its first shufflers changed."""
    pairs = zip(task.shufflers, changes, strict=False)
    changed = tuple(dataclasses.replace(each, **fields) for each, fields in pairs)
    return dataclasses.replace(task, shufflers=changed + task.shufflers[len(changed) :])


@lru_cache(maxsize=8)
def reduced_draft(task: Task, *, most_reports: int, n_users: tuple[int, ...]) -> TaskDraft | None:
    """
    Reduce a task on items to one that a few users complete in seconds; None if impossible.

    Keeps protocol and noise; reduces items, buckets and, if necessary, dummies, which does not
    change who detects an attack. A batch may have at most `most_reports` reports, and ε must be
    finite. `n_users`: values of n_min to try, in order. Cost: tenths of a second for each.
    """
    key = HpkePrivateKey.generate(task.suite).public_key().raw
    for cut, n_min in itertools.product((False, True), n_users):
        tried = _reduced(task, key, n_min, cut=cut)
        try:
            small = complete(tried, analyzer_key=key, nonce=bytes(NONCE_BYTES))
        except ShuffleDpError:  # no finite guarantee
            continue
        guarantee = claimed_guarantee(PrivacyParameters.of(small), n_min, small.lengths[-1])
        expected = n_min * small.expected_reports_per_user
        expected += small.shuffler.expected_dummies
        if expected <= most_reports and math.isfinite(guarantee.epsilon):
            return tried
    return None


def _fewer(noise: shuffler_spec.ItemNoise) -> shuffler_spec.ItemNoise:
    """Return a distribution of the shuffler's dummies with at most a few dozen of an item."""
    if isinstance(noise, shuffler_spec.GeometricNoise):
        most = min(noise.most, 3 * _MAX_DUMMIES)
        return dataclasses.replace(noise, peak=min(noise.peak, _MAX_DUMMIES), most=most)
    most = min(noise.most, 4 * _MAX_DUMMIES)
    return shuffler_spec.BinomialNoise(trials=most) if most else noise


def _reduced(task: Task, key: bytes, n_min: int, *, cut: bool) -> TaskDraft:
    size = min(task.domain_size, _FEW_ITEMS if task.relay else _MAX_ITEMS)
    dummies = task.dummies
    if isinstance(dummies, ItemDummies):
        dummies = dataclasses.replace(dummies, trials=size, most=min(dummies.most, size))
    elif cut and isinstance(dummies, ClusterDummies):
        dummies = _FEW_CLUSTERS
    elif cut and dummies.maximum > _MAX_DUMMIES:
        dummies = FixedDummies(per_user=_MAX_DUMMIES)
    noises = [task.hop(place).noises[0] for place in range(len(task.shufflers))]
    if cut:
        noises = list(map(_fewer, noises))
    relay = None
    if task.relay:
        other = HpkePrivateKey.generate(task.suite).public_key().raw
        relay = RelayDraft(name=task.relay.name, key=other, noise=noises[1])
    edges, buckets = None, 0
    if task.mechanism.fan_out:
        edges, buckets = EdgesSpec(low=0.0, high=1.0, buckets=size), task.item_mechanism.buckets
        mean = min(dummies.expected_per_user, _MAX_DUMMIES)
        dummies = ViewDummies.averaging(mean, hierarchy_sizes(size, min(buckets, size)))
    elif task.protocol_row.hashes:
        buckets = min(task.item_mechanism.buckets, _MAX_BUCKETS)
    kept = ("protocol", "local_epsilon", "assumed_honest_fraction", "suite")
    return TaskDraft(
        **{name: getattr(task, name) for name in kept},
        domain_size=size,
        labels=task.labels[:size],
        buckets=buckets,
        edges=edges,
        delta=_DELTA,
        dummies=dummies,
        shuffler=dataclasses.replace(task.hop(0).by_view[0], noise=noises[0]),
        shuffler_name=task.shufflers[0].name,
        relay=relay,
        n_min=n_min,
        target_size=100 * n_min,
        deadline=FAR_FUTURE,
        shuffler_key=key,
        budget_epsilon=_MAX_EPSILON,
    )
