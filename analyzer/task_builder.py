"""Complete an operator's draft into a task, for every kind of value. Pure."""

import dataclasses
import math

from analyzer.kinds import VALUE_KINDS
from common.accounting.claims import claimable_epsilon
from common.accounting.epsilon_search import MAX_EPSILON
from common.crypto.hpke import HpkePublicKey, suite_named
from common.errors import TaskError
from common.protocols import Protocol, protocol_named
from common.task.composition import check_domain_size
from common.task.domain_spec import GROUP_SEPARATOR, group_count, hierarchy_sizes
from common.task.draft import TaskDraft
from common.task.dummy_spec import DummySpec
from common.task.kinds import KINDS, TABLES
from common.task.specs import MAX_DOMAIN_SIZE, AnySpec, check_int_range, check_new_labels
from common.task.task import Task


def complete(draft: TaskDraft, *, analyzer_key: bytes, nonce: bytes) -> Task:
    """
    Complete a draft into a task: add the mechanism's integers and the claims. Pure.

    Raises:
        TaskError: The draft breaks a rule, or no finite ε can be claimed for n_min users.
        WireError: The shuffler_key is not a key of the suite.

    Cost: that of `claimable_epsilon`.
    """
    protocol = protocol_named(draft.protocol)
    _check_fields(draft, protocol)
    kind = VALUE_KINDS[protocol.kind]
    draft = dataclasses.replace(draft, labels=kind.labels(draft))
    check_new_labels(draft.labels)
    draft = with_all_items(draft)
    check_domain_size(draft.domain_size, protocol.kind)
    spec = kind.specify(draft, protocol)
    local_epsilon = kind.local_claim(draft, spec)
    length = suite_named(draft.suite).public_key_bytes
    shuffler_key = HpkePublicKey(draft.suite, draft.shuffler_key[:length])
    task = Task(
        protocol=draft.protocol,
        domain_size=draft.domain_size,
        labels=draft.labels,
        mechanism=spec,
        dummies=_dummies(draft, spec),
        shuffler=draft.shuffler,
        delta=draft.delta,
        n_min=draft.n_min,
        target_size=draft.target_size,
        deadline=draft.deadline,
        assumed_honest_fraction=draft.assumed_honest_fraction,
        local_epsilon=local_epsilon,
        central_epsilon=0.0,  # replaced below: it depends on all other fields
        suite=draft.suite,
        analyzer_key=analyzer_key,
        shuffler_key=shuffler_key.raw,
        shuffler_key_proof=draft.shuffler_key[length:],
        nonce=nonce,
        tokens=draft.tokens,
        edges=draft.edges,
        breakdown=draft.breakdown,
        population=draft.population,
        budget_epsilon=default_budget(draft, local_epsilon),
        budget_delta=draft.delta if draft.budget_delta is None else draft.budget_delta,
    )
    return dataclasses.replace(task, central_epsilon=claimable_epsilon(task))


def with_all_items(draft: TaskDraft) -> TaskDraft:
    """Set domain_size from labels or edges, and make an item for each pair of group and value."""
    labels = draft.labels
    size = len(labels) if labels and draft.domain_size == 1 else draft.domain_size
    if draft.edges is not None:
        if size not in {1, draft.edges.size}:
            raise TaskError(
                f"domain_size is {size} and the edges make {draft.edges.size} buckets; leave "
                "domain_size out"
            )
        size = draft.edges.size
    if size < 2 and KINDS[protocol_named(draft.protocol).kind].histogram:  # noqa: PLR2004  # items
        raise TaskError(
            f"there must be at least 2 items{', of each group' * (draft.breakdown is not None)}: "
            "set domain_size, labels or a table [edges]"
        )
    if draft.breakdown is not None:
        groups = draft.breakdown.groups
        check_int_range(
            f"domain_size times {len(groups)} groups", size * len(groups), 4, MAX_DOMAIN_SIZE
        )
        size *= len(groups)
        labels = tuple(f"{group}{GROUP_SEPARATOR}{label}" for group in groups for label in labels)
    return dataclasses.replace(draft, domain_size=size, labels=labels)


def _dummies(draft: TaskDraft, spec: AnySpec) -> DummySpec:
    if draft.dummies is None:
        if spec.levels:
            groups = group_count(draft.breakdown)
            sizes = hierarchy_sizes(draft.domain_size // groups, spec.item_buckets, groups)
            return DummySpec.by_level(draft.dummies_per_user, sizes)
        return DummySpec.averaging(draft.dummies_per_user)
    if draft.dummies_per_user:
        raise TaskError(
            f"dummies_per_user is {draft.dummies_per_user}; with a table [dummies] it must be 0"
        )
    return draft.dummies


def default_budget(draft: TaskDraft, local_epsilon: float) -> float:
    """
    Return the draft's budget, or by default the local ε, which one task cannot exceed.

    A task without local noise and without a population gets the largest ε that the accountant
    certifies.

    Raises TaskError if a task for a population has neither local noise nor a stated budget.
    """
    if draft.budget_epsilon is not None:
        return draft.budget_epsilon
    if not math.isinf(local_epsilon):
        return local_epsilon
    if draft.population:
        raise TaskError("a task without local noise for a population must state budget_epsilon")
    return MAX_EPSILON


def _check_fields(draft: TaskDraft, protocol: Protocol) -> None:
    for name in TABLES:
        if getattr(draft, name) is not None and name not in KINDS[protocol.kind].tables:
            raise TaskError(
                f"the draft has a table [{name}]; the protocol {protocol.name} is for "
                f"{protocol.kind} data"
            )
    if draft.edges is not None and draft.labels:
        raise TaskError(
            f"the draft has {len(draft.labels)} labels and a table [edges]; leave labels out: "
            "buckets are named by their edges"
        )
    if draft.n_min > draft.target_size:
        raise TaskError(
            f"n_min is {draft.n_min} and target_size is {draft.target_size}; n_min must be at most "
            "target_size"
        )
