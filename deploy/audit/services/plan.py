"""What is played: the audited task's draft, with as many users as one play has time for."""

import dataclasses
from dataclasses import dataclass
from typing import Final

import numpy as np

from analyzer.task_builder import complete
from common.accounting.epsilon_search import LEAST_EPSILON
from common.accounting.guarantees import Terms, claimed_guarantee
from common.crypto.hpke import HpkePrivateKey
from common.errors import ShuffleDpError
from common.task.draft import TaskDraft
from common.task.task import MAX_TASK_BYTES, Task
from deploy.audit.audited import Audited

TOKEN_BYTES: Final = 80
_REPORTS_EACH: Final = 11
"""Of each user: where they send more in one collection, there are fewer of them."""
_MOST_BYTES: Final = 24 * 1024 * 1024
"""Of one batch: one that is thrown into buckets is permuted in parts."""
_MOST_DUMMIES: Final = 3_000
"""Of the shuffler, expected in one collection."""
_FEWEST_USERS: Final = 40
_LEAST_BATCH: Final = 10
_DELTAS: Final = (1e-3, 0.05, 0.3)
"""Tried where a small batch promises nothing at the task's own δ."""
_AGENTS: Final = 30
"""Users who answer through the user agent."""
_SYLLABLES: Final = ("qua", "zor", "mbe", "xyl", "ptu", "kvi", "gno", "whe", "jyr", "dzi", "fru")
_MARKED_ITEMS: Final = 14_000
_MOST_LABELS: Final = 3_000
_FAR: Final = 4_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """Cheap to send to another process."""

    draft: TaskDraft
    """Of the task that all collections have in common, but for the shuffler's key, the deadline,
    the target and the population."""
    central_epsilon: float
    """That its task claims."""
    values: tuple[int, ...]
    """One a user."""
    persons: tuple[str, ...]
    population: str
    marked: TaskDraft
    marked_values: tuple[int, ...]
    tokens: tuple[bytes, ...]
    """One a user; nobody looks at them."""
    seed: int

    @property
    def n_users(self) -> int:
        """Who take part."""
        return len(self.values)


def plan_for(audited: Audited, rng: np.random.Generator) -> Plan:
    """
    Plan a play. What is drawn, is drawn from the generator.

    Cost: some searches for ε, tenths of a second each.
    """
    task = audited.task
    bytes_each = task.reports_per_user * task.sealed_report_bytes
    n_users = min(
        audited.effort.users,
        max(_FEWEST_USERS, audited.effort.users * _REPORTS_EACH // task.reports_per_user),
        max(_FEWEST_USERS, _MOST_BYTES // bytes_each),
    )
    draft, central_epsilon = _claimable(_fitting(recovered(task), rng, task), n_users)
    size = draft.domain_size
    values = np.minimum((size * rng.random(n_users) ** 2).astype(np.int64), size - 1)
    marked = rng.choice(np.arange(10_001, _MARKED_ITEMS), size=12, replace=False)
    return Plan(
        draft=draft,
        central_epsilon=central_epsilon,
        values=tuple(values.tolist()),
        persons=tuple(f"{_word(rng)} {_word(rng)}" for _ in range(min(_AGENTS, n_users // 4))),
        population=f"the {_word(rng)}s",
        marked=TaskDraft(
            protocol="mixdump",
            domain_size=_MARKED_ITEMS,
            dummies_per_user=1,
            local_epsilon=4.0,
            delta=1e-6,
            n_min=len(marked),
            target_size=len(marked),
            deadline=_FAR,
            shuffler_key=b"",
        ),
        marked_values=tuple(marked.tolist()),
        tokens=tuple(rng.bytes(TOKEN_BYTES) for _ in range(n_users)),
        seed=int(rng.integers(0, 2**63)),
    )


def recovered(task: Task) -> TaskDraft:
    """Give the draft that a task could have been made of, for a batch of its own n_min."""
    return TaskDraft(
        protocol=task.protocol,
        domain_size=task.domain_size,
        labels=task.labels,
        buckets=task.item_mechanism.buckets if task.composition.hashes else 0,
        local_epsilon=task.local_epsilon,
        delta=task.delta,
        dummies=task.dummies,
        shuffler=task.shuffler,
        assumed_honest_fraction=task.assumed_honest_fraction,
        n_min=task.n_min,
        target_size=task.target_size,
        deadline=_FAR,
        shuffler_key=task.shuffler_key,
        budget_epsilon=None,
        suite=task.suite,
    )


def _fitting(draft: TaskDraft, rng: np.random.Generator, task: Task) -> TaskDraft:
    """Give items names to search for; fewer items if the shuffler had to add too much."""
    size, word = draft.domain_size, _word(rng)
    if draft.labels:
        size = min(size, MAX_TASK_BYTES // 2 // len(f'"{word} {size}",'))
    if task.expected_shuffler_dummies > _MOST_DUMMIES:
        size = max(2, size * _MOST_DUMMIES // task.expected_shuffler_dummies)
    return _of_items(draft, size, word)


def _of_items(draft: TaskDraft, size: int, word: str) -> TaskDraft:
    dummies = draft.dummies
    if dummies is not None and not dummies.uniform:
        dummies = dataclasses.replace(dummies, trials=size, most=min(dummies.most, size))
    named = size <= _MOST_LABELS or bool(draft.labels)
    return dataclasses.replace(
        draft,
        domain_size=size,
        dummies=dummies,
        labels=tuple(f"{word} {item}" for item in range(size)) if named else (),
    )


def _claimable(draft: TaskDraft, n_users: int) -> tuple[TaskDraft, float]:
    """
    Find a small n_min at which something finite is claimed, and what.

    Where there is none, at a larger δ; where there is none either, with fewer items: of this play
    nothing is relied on but the code.
    """
    key = HpkePrivateKey.generate(draft.suite).public_key().raw
    batches = sorted({max(_LEAST_BATCH, n_users // 10), n_users // 3})
    while True:
        for delta in (draft.delta, *(delta for delta in _DELTAS if delta > draft.delta)):
            for n_min in batches:
                tried = dataclasses.replace(
                    draft, n_min=n_min, target_size=10 * n_users, delta=delta, shuffler_key=key
                )
                try:
                    task = complete(tried, analyzer_key=key, nonce=bytes(32))
                except ShuffleDpError:
                    continue
                return _charged(tried, task, n_users)
        if draft.domain_size <= 2:  # noqa: PLR2004  # no fewer items
            raise ValueError("no small batch of this protocol claims anything")
        word = draft.labels[0].split()[0] if draft.labels else ""
        draft = _of_items(draft, draft.domain_size // 2, word)


def _charged(draft: TaskDraft, task: Task, n_users: int) -> tuple[TaskDraft, float]:
    """Lessen δ where it alone allows all that is learned: then there is something to be charged."""
    while claimed_guarantee(Terms.of(task), n_users).epsilon == LEAST_EPSILON:
        lesser = dataclasses.replace(draft, delta=draft.delta / 2)
        try:
            task = complete(lesser, analyzer_key=task.analyzer_key, nonce=task.nonce)
        except ShuffleDpError:
            break
        draft = lesser
    return draft, task.central_epsilon


def _word(rng: np.random.Generator) -> str:
    return "".join(_SYLLABLES[place] for place in rng.integers(0, len(_SYLLABLES), size=5))
