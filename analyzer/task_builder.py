"""Complete an operator's draft into a task, for every kind of value. Pure."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from shuffledp.common.accounting.claims import claimable_coalition_epsilon, claimable_epsilon
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.crypto.hpke import HpkePublicKey, suite_named
from shuffledp.common.dates import utc
from shuffledp.common.errors import TaskError
from shuffledp.common.limits import MAX_LOCAL_EPSILON
from shuffledp.common.mechanisms.base import MechanismRequest
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.mechanisms.hashing.local_hashing import optimal_buckets
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.mechanisms.registry import ITEM_MECHANISMS, MEAN_MECHANISMS
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.protocols import Kind, ProtocolRow, protocol_named
from shuffledp.common.task import specs
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR, group_count
from shuffledp.common.task.draft import NumberDraft, OpenDraft, PairDraft, TaskDraft, TextDraft
from shuffledp.common.task.kinds import KINDS, TABLES
from shuffledp.common.task.labels import check_new_labels, normalize
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.protocol_rules import check_domain_size
from shuffledp.common.task.shuffler_spec import NO_NOISE
from shuffledp.common.task.spec_forms import AnySpec
from shuffledp.common.task.task import FOR_PEOPLE, Task
from shuffledp.common.task.task_parts import TaskShuffler, TaskView
from shuffledp.common.task.uniform_dummies import averaging
from shuffledp.common.task.view_specs import TableSpec

MIN_DRAFT_EPSILON: Final = 1e-6
"""Minimum local ε of numbers and pairs; below it, no number of users gives a useful estimate."""
_DEFAULT_BITS: Final = 32
"""Bits of a Bloom filter, unless the draft states them."""


def complete(draft: TaskDraft, *, analyzer_key: bytes, nonce: bytes, now: float = 0.0) -> Task:
    """
    Complete a draft into a task: add the mechanism's integers and the claims. Pure.

    The budget is by default the local ε, which one task cannot exceed. A task without local noise
    and without a population gets the largest ε that the accountant certifies.

    Raises:
        TaskError: The draft breaks a rule, its deadline is not after `now` (UNIX time), or no
            finite ε can be claimed for n_min users.
        WireError: A shuffler's key is not a key of the suite.

    Cost: that of `claimable_epsilon`.
    """
    if draft.deadline <= now:
        raise TaskError(f"the deadline, {utc(draft.deadline)}, is not in the future")
    task = without_claim(draft, analyzer_key=analyzer_key, nonce=nonce)
    return with_claims(task)


def with_claims(task: Task) -> Task:
    """Return a task with the claims that every device can check; `complete` states the errors."""
    coalition, central = claimable_coalition_epsilon(task), claimable_epsilon(task)
    return dataclasses.replace(task, central_epsilon=central, coalition_epsilon=coalition)


def without_claim(draft: TaskDraft, *, analyzer_key: bytes, nonce: bytes) -> Task:
    """Return a draft's task before its claims are computed; raise TaskError for a broken rule."""
    if draft.n_min > draft.target_size:
        raise TaskError(
            f"n_min is {draft.n_min} and target_size is {draft.target_size}; n_min must be at most "
            "target_size"
        )
    protocol = protocol_named(draft.protocol)
    kind = _KINDS[protocol.kind]
    draft = _with_all_items(draft, protocol)
    check_domain_size(draft.domain_size, protocol.kind)
    if protocol.noiseless and not draft.local_epsilon:
        draft = dataclasses.replace(draft, local_epsilon=math.inf)
    if not (draft.local_epsilon or kind.implies_epsilon):
        raise TaskError(f"local_epsilon is 0 or left out; the protocol {protocol.name} requires it")
    spec, local_epsilon = kind.specify(draft, protocol)
    if draft.dummies is not None and draft.dummies_per_user:
        raise TaskError(
            f"dummies_per_user is {draft.dummies_per_user}; with a table [dummies] it must be 0"
        )
    views = _views(draft, spec)
    budget_epsilon = draft.budget_epsilon
    if budget_epsilon is None:
        if math.isinf(local_epsilon) and draft.population:
            raise TaskError("a task without local noise for a population must state budget_epsilon")
        budget_epsilon = min(local_epsilon, MAX_EPSILON)
    return Task(
        protocol=draft.protocol,
        views=views,
        labels=draft.labels,
        mechanism=spec,
        shufflers=_shufflers(draft, len(views)),
        delta=draft.delta,
        n_min=draft.n_min,
        target_size=draft.target_size,
        deadline=draft.deadline,
        assumed_honest_fraction=draft.assumed_honest_fraction,
        local_epsilon=local_epsilon,
        central_epsilon=0.0,  # it depends on all other fields, as a chain's coalition ε
        coalition_epsilon=MAX_EPSILON if draft.relay else local_epsilon,
        suite=draft.suite,
        analyzer_key=analyzer_key,
        nonce=nonce,
        tokens=draft.tokens,
        edges=draft.edges,
        breakdown=draft.breakdown,
        population=draft.population,
        budget_epsilon=budget_epsilon,
        budget_delta=draft.delta if draft.budget_delta is None else draft.budget_delta,
        **{name: getattr(draft, name) for name in FOR_PEOPLE},
    )


def _with_all_items(draft: TaskDraft, protocol: ProtocolRow) -> TaskDraft:
    """
    Check that a draft's tables fit its protocol, and set domain_size and labels.

    domain_size follows from labels or edges; with a breakdown there is an item for each pair of
    group and value.
    """
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
    labels = tuple(map(_KINDS[protocol.kind].label, draft.labels))
    check_new_labels(labels)
    size = len(labels) if labels and draft.domain_size == 1 else draft.domain_size
    implied, noun = draft.edges.size if draft.edges else 0, "buckets"
    if draft.tables:
        implied, noun = len(draft.tables.attributes), "attributes"
    if implied and size not in {1, implied}:
        raise TaskError(
            f"domain_size is {size} and the draft states {implied} {noun}; leave domain_size out"
        )
    size = implied or size
    if size < 2 and KINDS[protocol.kind].histogram:  # noqa: PLR2004  # items
        raise TaskError(
            f"there must be at least 2 items{', of each group' * (draft.breakdown is not None)}: "
            "set domain_size, labels or a table [edges]"
        )
    if draft.breakdown is not None:
        groups = draft.breakdown.groups
        specs.check_int_range(
            f"domain_size times {len(groups)} groups", size * len(groups), 4, specs.MAX_DOMAIN_SIZE
        )
        size *= len(groups)
        labels = tuple(f"{group}{GROUP_SEPARATOR}{label}" for group in groups for label in labels)
    return dataclasses.replace(draft, domain_size=size, labels=labels)


def _shufflers(draft: TaskDraft, views: int) -> tuple[TaskShuffler, ...]:
    """Return the draft's shuffler, and its relay if it has one."""
    stated = (draft.shuffler.noise, draft.noises)
    given = [("shuffler", draft.shuffler_name, draft.shuffler_key, *stated)]
    if (relay := draft.relay) is not None:
        given.append(("relay", relay.name, relay.key, relay.noise, relay.noises))
    length, found = suite_named(draft.suite).public_key_bytes, []
    for table, name, signed, of_all, by_view in given:
        if by_view and of_all != NO_NOISE:
            raise TaskError(
                f"the table [{table}] has keys of noise beside views; state one or the other"
            )
        noises = by_view or (of_all,) * views
        key = HpkePublicKey(draft.suite, signed[:length]).raw
        found.append(TaskShuffler(name=name, key=key, proof=signed[length:], noises=noises))
    found[0] = dataclasses.replace(found[0], keep_weight=draft.shuffler.keep_weight)
    return tuple(found)


def _views(draft: TaskDraft, spec: AnySpec) -> tuple[TaskView, ...]:
    """Return a task's views, with the draft's dummies; of several, as many for each item."""
    sizes = spec.view_sizes(draft.domain_size, group_count(draft.breakdown))
    dummies = draft.dummies
    if dummies is None and len(sizes) == 1:
        dummies = averaging(draft.dummies_per_user)
    of_views = (dummies or ViewDummies.averaging(draft.dummies_per_user, sizes)).views
    if len(of_views) != len(sizes):
        raise TaskError(f"the dummies have {len(of_views)} views; the task has {len(sizes)}")
    return tuple(
        TaskView(domain_size=size, dummies=each) for size, each in zip(sizes, of_views, strict=True)
    )


def _check_noise(draft: TaskDraft, protocol: ProtocolRow) -> None:
    if not MIN_DRAFT_EPSILON <= draft.local_epsilon <= MAX_LOCAL_EPSILON:
        raise TaskError(
            f"local_epsilon is {draft.local_epsilon}; {protocol.kind} data always needs noise, "
            f"so it must be from {MIN_DRAFT_EPSILON} to {MAX_LOCAL_EPSILON}"
        )


def _check_unhashed(draft: TaskDraft, protocol: ProtocolRow) -> None:
    if draft.buckets:
        raise TaskError(
            f"the protocol {protocol.name} does not hash items; buckets is {draft.buckets}, and "
            "must be 0"
        )


def _of_items(draft: TaskDraft, protocol: ProtocolRow) -> tuple[specs.MechanismSpec, float]:
    buckets = draft.buckets
    if protocol.buckets and buckets not in {0, protocol.buckets}:
        raise TaskError(
            f"the protocol {protocol.name} hashes into {protocol.buckets} buckets; buckets is "
            f"{buckets}"
        )
    if not buckets and protocol.hashes and not protocol.amplified:
        buckets = protocol.buckets or optimal_buckets(draft.local_epsilon, draft.domain_size)
    request = MechanismRequest(
        name=protocol.mechanism_for(domain_size=draft.domain_size, buckets=buckets),
        domain_size=draft.domain_size,
        buckets=buckets,
        local_epsilon=draft.local_epsilon,
        groups=group_count(draft.breakdown),
    )
    return ITEM_MECHANISMS[request.name].specify(request), draft.local_epsilon


def _of_texts(draft: TaskDraft, protocol: ProtocolRow) -> tuple[specs.RapporSpec, float]:
    """Return RAPPOR's integers, and the draft's local ε or else the least: what they imply."""
    _check_unhashed(draft, protocol)
    texts = draft.texts or TextDraft()
    if draft.labels and texts.cohorts not in {1, TextDraft().cohorts}:
        raise TaskError(f"cohorts is {texts.cohorts}; with labels it must be 1, or left out")
    spec = Rappor.specify(
        encoding="labels" if draft.labels else "bloom",
        bits=texts.bits or len(draft.labels) or _DEFAULT_BITS,
        hashes=texts.hashes,
        cohorts=1 if draft.labels else texts.cohorts,
        f=_probability("permanent", texts.permanent),
        p=_probability("unset", texts.unset),
        q=_probability("set", texts.set),
        most_bytes=texts.most_bytes,
        question=texts.question,
    )
    implied = Rappor.of(spec, draft.labels).local_epsilon
    if draft.local_epsilon and draft.local_epsilon < implied:
        raise TaskError(
            f"local_epsilon is {draft.local_epsilon}; one report with these probabilities costs "
            f"{implied}. Leave it out, or raise permanent or unset, or lower set"
        )
    return spec, draft.local_epsilon or implied


def _probability(name: str, value: float) -> Fraction:
    """Return the fraction of a probability's shortest decimal; raise TaskError if out of range."""
    if not 0 <= value <= 1:
        raise TaskError(f"{name} is {value}; it must lie between 0 and 1")
    return Fraction(repr(float(value)))


def _of_open_values(draft: TaskDraft, protocol: ProtocolRow) -> tuple[specs.OpenSpec, float]:
    _check_noise(draft, protocol)
    form, epsilon = draft.open or OpenDraft(), draft.local_epsilon
    return PrefixHashing.specify(form, draft.buckets, epsilon), epsilon


def _of_pairs(draft: TaskDraft, protocol: ProtocolRow) -> tuple[specs.KeyValueSpec, float]:
    _check_noise(draft, protocol)
    _check_unhashed(draft, protocol)
    return PrivKv.specify(draft.pairs or PairDraft(), draft.local_epsilon), draft.local_epsilon


def _of_tables(draft: TaskDraft, protocol: ProtocolRow) -> tuple[TableSpec, float]:
    _check_unhashed(draft, protocol)
    if draft.tables is None:
        raise TaskError(f"the protocol {protocol.name} needs a table [tables] of attributes")
    return Tables.specify(draft.tables), draft.local_epsilon


def _of_numbers(draft: TaskDraft, protocol: ProtocolRow) -> tuple[AnySpec, float]:
    if not protocol.noiseless:
        _check_noise(draft, protocol)
    _check_unhashed(draft, protocol)
    numbers, epsilon = draft.numbers or NumberDraft(), draft.local_epsilon
    specify = MEAN_MECHANISMS[protocol.mechanism].specify
    return specify(numbers, draft.domain_size, epsilon), epsilon


class _Kind(NamedTuple):
    """How drafts of one kind of value become tasks."""

    specify: Callable[[TaskDraft, ProtocolRow], tuple[AnySpec, float]]
    """Computes the mechanism's integers and the local ε to claim; raises TaskError if it cannot."""
    label: Callable[[str], str] = str
    """The form of a label in the task."""
    implies_epsilon: bool = False
    """Whether a draft's table implies the local ε, which may then be left out."""


_KINDS: Final[Mapping[Kind, _Kind]] = {
    "categorical": _Kind(_of_items),
    "ordered": _Kind(_of_items),
    # Devices normalize texts.
    "string": _Kind(_of_texts, label=normalize, implies_epsilon=True),
    "open": _Kind(_of_open_values),
    "mean": _Kind(_of_numbers),
    "vector": _Kind(_of_numbers),
    "key-value": _Kind(_of_pairs),
    "table": _Kind(_of_tables),
}
