"""Whether the analyzer makes of an operator's draft what the operator meant, field by field."""

import dataclasses
from typing import Final

from analyzer.task_builder import complete
from common.crypto.hpke import HpkePrivateKey
from common.crypto.suites import SUITES
from common.task.draft import TaskDraft
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.task.task import NONCE_BYTES
from common.wire.tasks import draft_from_wire, draft_to_wire
from deploy.audit.checks import Checks

_SUITE: Final = tuple(SUITES)[-1]
_COPIED: Final = (
    *("protocol", "labels", "delta", "n_min", "target_size", "deadline", "suite", "population"),
    *("assumed_honest_fraction", "budget_epsilon", "budget_delta"),
)
"""What a task has as it was drafted."""
_DUMMIES: Final = DummySpec(law="binomial", per_user=1, trials=3, extra_weight=2**30, most=3)
_SHUFFLER: Final = ShufflerSpec(law="binomial", keep_weight=KEEP_SUM // 3, trials=5, most=5)


def _unlike_defaults() -> TaskDraft:
    """No field is what it would be if it were forgotten, but those of other kinds of dummies."""
    return TaskDraft(
        protocol="murs",
        domain_size=11,
        labels=tuple(f"item {item}" for item in range(11)),
        buckets=7,
        dummies_per_user=1.25,
        local_epsilon=1.5,
        delta=1e-7,
        n_min=900,
        target_size=1000,
        deadline=2**31 + 1,
        assumed_honest_fraction=0.75,
        shuffler_key=HpkePrivateKey.generate(_SUITE).public_key().raw,
        population="somebody",
        budget_epsilon=1.25,
        budget_delta=1e-5,
        suite=_SUITE,
    )


def check_drafts(checks: Checks) -> None:
    """Send two drafts, and complete the one that makes a task; nothing is drawn."""
    first = _unlike_defaults()
    other = dataclasses.replace(first, dummies_per_user=0.0, dummies=_DUMMIES, shuffler=_SHUFFLER)
    for draft in (first, other):
        read = draft_from_wire(draft_to_wire(draft))
        for field in dataclasses.fields(TaskDraft):
            checks.must(
                f"an operator's {field.name} reaches the analyzer",
                getattr(read, field.name) == getattr(draft, field.name),
            )
    draft = dataclasses.replace(first, protocol="od-hp")
    task = complete(draft, analyzer_key=draft.shuffler_key, nonce=bytes(range(NONCE_BYTES)))
    for name in _COPIED:
        checks.must(
            f"a task has the {name} of its draft", getattr(task, name) == getattr(draft, name)
        )
