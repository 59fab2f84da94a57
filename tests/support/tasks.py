"""Drafts and published tasks for tests."""

import math
from dataclasses import dataclass
from typing import Any, Final

from shuffledp.analyzer.task_builder import complete
from shuffledp.audit.harness.tasks import FAR_FUTURE
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey
from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from tests.support.keys import signed_key

SHUFFLER_NOISE: Final[dict[str, Any]] = {
    "protocol": "sbin",
    "local_epsilon": math.inf,
    "dummies_per_user": 0,
    "buckets": 0,
}
"""Fields of a task whose noise is all the shuffler's."""


_SIGNED_KEY: Final = bytes(31) + b"\x09" + MAX_UNIX_TIME.to_bytes(8) + bytes(64)


def draft(shuffler_key: bytes = _SIGNED_KEY, **changes: Any) -> TaskDraft:
    """Return a small valid draft: 100 items, g = 13, local epsilon 2, one dummy."""
    fields: dict[str, Any] = {
        "domain_size": 100,
        "buckets": 13,
        "dummies_per_user": 1,
        "local_epsilon": 2.0,
        "delta": 1e-6,
        "n_min": 10,
        "target_size": 20,
        "deadline": FAR_FUTURE,
        "shuffler_key": shuffler_key,
    }
    return TaskDraft(**fields | changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTask:
    """A signed task with its keys."""

    task: Task
    signed: SignedTask
    identity: SigningIdentity
    analyzer_key: HpkePrivateKey
    shuffler_key: HpkePrivateKey


def published(**changes: Any) -> PublishedTask:
    """Publish the task of a small draft, with some fields changed."""
    suite = changes.get("suite", DEFAULT_SUITE)
    identity, analyzer_key = SigningIdentity.generate(), HpkePrivateKey.generate(suite)
    shuffler_key = HpkePrivateKey.generate(suite)
    wanted = draft(signed_key(shuffler_key.public_key()), **changes)
    task = complete(wanted, analyzer_key=analyzer_key.public_key().raw, nonce=bytes(range(32)))
    return PublishedTask(
        task=task,
        signed=identity.sign(task.to_bytes()),
        identity=identity,
        analyzer_key=analyzer_key,
        shuffler_key=shuffler_key,
    )
