"""Designs that are tasks; for texts, numbers and pairs, with the largest local ε. Pure."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from shuffledp.common.errors import PlanError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.discovery.prefix_hashing import FIRST_BYTES, PrefixHashing
from shuffledp.common.mechanisms.discovery.prefix_search import BYTES, critical_count, sure_share
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.key_value.estimator import PairEstimates, PairEstimator
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.rappor import bloom
from shuffledp.common.mechanisms.registry import (
    mean_mechanism_of,
    mechanism_of,
    prefix_hashing_of,
    rappor_of,
)
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.protocols import PROTOCOLS, Kind
from shuffledp.common.task.draft import NumberDraft, TaskDraft, TextDraft
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import INSTANT_SUM, PERMANENT_SUM, OpenSpec, RangedSpec, RapporSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import DigitSpec
from shuffledp.lab.planning.design import Design, share_covariance, share_variances
from shuffledp.lab.planning.requirements import MIN_VALUE_EPSILON, Requirements

_REL_TOL: Final = 1e-2
"""Relative tolerance of the search for the largest local ε."""
_OWNERS: Final = 0.5
"""Share of owners for which the error of shares is predicted."""
_OPEN_FORMS: Final = {
    "text": "texts of at most {} bytes, ",
    "code": "integers of {} bytes, ",
    "hash": "texts by hashes of {} bytes, ",
}
_GUESS: Final = "the most that a guess of the middle is wrong by"
_UNIT: Final = " in the unit of the values"


@dataclass(frozen=True, kw_only=True)
class ValueDesign(Design):
    """A design for any kind but `categorical`."""

    @property
    def mse(self) -> float:
        """The predicted mean squared error; of buckets, that of the prefix that counts."""
        errors = PLANNED_KINDS[self.target.kind].errors(self.unclaimed, self.target.n_users)
        return self.target.prefix_error(errors)

    @property
    def smallest_share(self) -> float:
        return PLANNED_KINDS[self.target.kind].smallest_share(self.unclaimed, self.target.n_users)


def value_design(protocol: str, target: Requirements) -> ValueDesign:
    """
    Return a protocol's design with the largest local ε that meets the target.

    Raises PlanError if there is none, TaskError if the requirements break a rule of the protocol's
    tasks. Cost: about ten tasks, tenths of a second each.
    """
    high = target.noise_cap
    best = _design_at(protocol, high, target)
    if best is not None:
        return best
    low = max(MIN_VALUE_EPSILON, min(high, target.central_epsilon))  # central ε ≤ local ε
    best = _design_at(protocol, low, target)
    if best is None:
        raise PlanError(
            f"no local epsilon meets a central epsilon of {target.central_epsilon:g} at delta "
            f"{target.delta:g} with {target.n_min} users: use more users, a larger epsilon or a "
            "larger delta"
        )
    while high > low * (1 + _REL_TOL):
        middle = math.sqrt(low * high)
        better = _design_at(protocol, middle, target)
        best, low, high = (best, low, middle) if better is None else (better, middle, high)
    return best


def _design_at(protocol: str, local_epsilon: float, target: Requirements) -> ValueDesign | None:
    """Return the design with this local ε, or None if its task does not meet the target."""
    kind = PLANNED_KINDS[target.kind]
    draft = kind.draft(protocol, local_epsilon, target)
    if draft is None:
        return None
    biased, floor = PROTOCOLS[protocol].biased, kind.is_floor(draft)
    design = ValueDesign(draft=draft, target=target, biased=biased, floor=floor)
    if design.task.central_epsilon > target.central_epsilon:
        return None
    return design if design.local_epsilon <= target.local_cap else None


@lru_cache(maxsize=16)
def prefix_variances(task: Task, n_users: int) -> Vector:
    """
    Return the predicted variance of the share of users up to each bucket of their group.

    Assumes evenly spread values, and for hashed reports errors that are alike for all pairs.
    Shape (domain_size,).
    """
    size, items = task.domain_size, np.arange(1.0, task.domain_size // task.groups + 1)
    covariance = share_covariance(mechanism_of(task), task, n_users, np.full(size, 1 / size))
    if isinstance(covariance.mechanism, LocalHashing):  # exact variances take seconds per design
        each = share_variances(covariance).mean()
        return np.tile(each * items * (size - items) / (size - 1), task.groups)
    return covariance.of_prefixes()


def _with_noise(texts: TextDraft | None, bits: int, local_epsilon: float) -> TextDraft | None:
    """
    Return RAPPOR's parameters for a local ε, with q = 1 - p; None if p would be 1/2.

    p solves (1-f)(q-p) = tanh(ε/4h), the signal at this ε; p is 0 if the permanent noise f alone
    leaves less. A given f must be in [0, 1), else PlanError; the default f is lowered if necessary.
    """
    rappor = texts or TextDraft(bits=bits)
    signal = math.tanh(local_epsilon / (4 * rappor.hashes))
    if texts is None:
        most = math.floor((1 - signal) * PERMANENT_SUM) / PERMANENT_SUM
        rappor = dataclasses.replace(rappor, permanent=min(rappor.permanent, most))
    if not 0 <= rappor.permanent < 1:
        raise PlanError(f"permanent is {rappor.permanent}; it must be at least 0 and below 1")
    spread = min(1.0, signal / (1 - rappor.permanent))
    unset = math.floor((1 - spread) / 2 * INSTANT_SUM + 1) / INSTANT_SUM if spread < 1 else 0.0
    if unset >= 1 / 2:
        return None
    return dataclasses.replace(rappor, unset=unset, set=1 - unset)


def _text_errors(task: Task, n_users: int) -> Vector:
    """
    Return the variance of the estimated share of a rare text that is the only candidate.

    Further candidates and frequent other texts add errors. For labels it is the noise of the
    label's bit, p*(1-p*) / (n·(q*-p*)²) [EPK14]. Bit i of a Bloom filter is also set by a share
    b_i of users with other texts, which is noise; hash collisions in the m cohorts add a
    variance of b_i(1-b_i)(1-1/m).
    """
    spec, rappor = spec_as(task.mechanism, RapporSpec), rappor_of(task)
    signal = rappor.set_probability - rappor.unset_probability
    var_unset, var_set = (
        chance * (1 - chance) / signal**2
        for chance in (rappor.unset_probability, rappor.set_probability)
    )
    if spec.encoding == "labels":
        return np.array([var_unset / n_users])
    others = 1 - (1 - bloom.hash_distribution(spec.bits)) ** spec.hashes
    leverage = others * (1 - others)
    noise = var_unset + others * (var_set - var_unset)
    collisions = leverage * (1 - 1 / spec.cohorts)
    total = (leverage * (noise + collisions)).sum()
    return np.array([total / (n_users * leverage.sum() ** 2)])


def _open_errors(task: Task, n_users: int) -> Vector:
    mechanism = prefix_hashing_of(task)
    per_report = mechanism.q * (1 - mechanism.q) / (mechanism.p - mechanism.q) ** 2
    return np.array([per_report * mechanism.levels / n_users])


def _smallest_share(task: Task, n_users: int) -> float:
    return planned_share(spec_as(task.mechanism, OpenSpec), n_users)


def planned_share(spec: OpenSpec, n_users: int) -> float:
    """Return the `sure_share` to expect, with as many candidates at each level as at the first."""
    mechanism, spells = PrefixHashing.of(spec), spec.encoding == "spell"
    levels, number = mechanism.levels, n_users // mechanism.levels
    candidates = BYTES if spells else BYTES ** min(FIRST_BYTES, spec.code_bytes)
    critical = [
        critical_count(number, candidates, mechanism.buckets, last=spells or level == levels - 1)
        for level in range(levels)
    ]
    return sure_share(mechanism, np.full(levels, number), critical)


def _number_errors(task: Task, n_users: int) -> Vector:
    """Return the error of the mean of the numbers that give it the largest one."""
    numbers = spec_as(task.mechanism, RangedSpec)
    half = (numbers.high - numbers.low) / 2
    return np.array([half**2 * mean_mechanism_of(task).worst_variance(n_users)])


def _pair_errors(task: Task, n_users: int) -> Vector:
    owners = np.full(task.domain_size, _OWNERS)
    expected = expected_pairs(PrivKv.of(task), owners, np.zeros(task.domain_size), n_users)
    squares: Vector = expected.frequency_errors**2
    return squares


def _table_errors(task: Task, n_users: int) -> Vector:
    tables = Tables.of(task)
    cells, _ = tables.variances(n_users)
    return np.array([np.average(cells, weights=tables.sizes) / n_users**2])


def expected_pairs(
    estimator: PairEstimator, frequencies: Vector, means: Vector, n_users: int
) -> PairEstimates:
    """
    Return the expectation and the standard errors of `estimate`, for users drawn at random.

    Shares vary around those of the users drawn, means around those of the population. Both use
    E[1/R] over the number R of reports to second order, and ignore clipping to -1 .. 1.

    Arguments are those of `bias_of_fakes`; there are at least a few users for each key.
    """
    asked = np.full(len(frequencies), 1 / len(frequencies))
    inverse = _mean_inverse(n_users, asked)
    coin = estimator.p_key * (1 - estimator.p_key) / (estimator.key_signal or 1.0) ** 2
    not_asked = np.maximum(n_users * inverse - 1, 0.0) / max(n_users - 1, 1)
    known = estimator.key_signal > 0
    errors = np.sqrt(coin * inverse + frequencies * (1 - frequencies) * not_asked)
    with_fakes = means + estimator.bias_of_fakes(frequencies, means)
    present = frequencies * estimator.key_signal + 1 - estimator.p_key
    signs = _mean_inverse(n_users, present * asked)
    return PairEstimates(
        frequencies=np.where(known, frequencies, 0.5),
        frequency_errors=np.where(known, errors, 0.5),
        means_with_fakes=with_fakes,
        errors_with_fakes=np.sqrt((estimator.value_signal**-2 - with_fakes**2) * signs),
        has_values=np.ones(len(frequencies), dtype=np.bool_),
    )


def _mean_inverse(trials: int, probabilities: Vector) -> Vector:
    """Return E[1/R] of a binomial R > 0 of mean μ, to second order: (1 + Var[R]/μ²) / μ."""
    mean = trials * probabilities
    return (1 + (1 - probabilities) / mean) / mean


def _draft(protocol: str, local_epsilon: float, target: Requirements) -> TaskDraft | None:
    return target.draft(protocol, local_epsilon=local_epsilon)


def _text_draft(protocol: str, local_epsilon: float, target: Requirements) -> TaskDraft | None:
    draft = target.draft(protocol)
    texts = _with_noise(draft.texts, 0 if draft.labels else 32, local_epsilon)
    return None if texts is None else dataclasses.replace(draft, texts=texts)


def _describe_report(design: Design) -> str:
    return f"local epsilon {rounded_up(design.local_epsilon)}; one report"


def _describe_number(design: Design) -> str:
    task, spec = design.unclaimed, design.unclaimed.mechanism
    if not isinstance(spec, DigitSpec):
        return _describe_report(design)
    alike = slice(len(spec.radices))  # the digits of every number
    means, of = [view.dummies.expected_per_user for view in task.views[alike]], "per user"
    if not any(means):
        means = [noise.moments()[0] for noise in task.shuffler.noises[alike]]
        of = f"of each value by {'both shufflers' if task.relay else 'the shuffler'}"
    return (
        f"{spec.points:,} points, in digits of {', '.join(map(str, spec.radices))} values with "
        f"{', '.join(f'{mean:.3g}' for mean in means)} dummies {of}; "
        f"{design.messages_per_user:.4g} messages"
    )


def _describe_open_report(design: Design) -> str:
    form, values = "", design.draft.open
    if values is not None:
        form = _OPEN_FORMS[values.encoding].format(values.code_bytes)
    return f"{form}{_describe_report(design)}"


def _describe_items(design: Design) -> str:
    task, buckets, number = design.unclaimed, design.draft.buckets, design.messages_per_user
    name = f"local hashing into {buckets} buckets" if buckets else "plain items"
    if task.own_reports > 1:
        name = f"a hierarchy of {task.own_reports} levels with a fan-out of {buckets}"
    plain = math.isinf(design.local_epsilon)
    noise = "without local noise" if plain else f"with local epsilon {design.local_epsilon:g}"
    mean, _ = task.shuffler.noises[-1].moments()
    by_shuffler = f", {mean:.4g} dummies per item by the shuffler" if mean else ""
    if task.relay:
        first, second = (task.hop(number).noises[-1].words for number in (0, 1))
        by_shuffler = f", dummies per item by the first shuffler: {first}, by the second: {second}"
    messages = "one message" if number == 1 else f"{number:.5g} messages"
    return f"{name} {noise}{design.dummies.clause or by_shuffler}; {messages}"


def _describe_tables(design: Design) -> str:
    task, number = design.unclaimed, design.messages_per_user
    by = "both shufflers" if task.relay else "the shuffler"
    by_shuffler = f", {task.shuffler.expected_dummies:,} dummies of all cells by {by}"
    return (
        f"true cells of {len(task.views):,} tables without local noise"
        f"{design.dummies.clause or by_shuffler}; {number:.5g} messages"
    )


def _half_range(target: Requirements) -> tuple[float, str]:
    numbers = target.draft_fields.get("numbers") or NumberDraft()
    return (numbers.high - numbers.low) / 2, _GUESS


class PlannedKind(NamedTuple):
    """The planner's part of one kind of value."""

    error_of: str
    """The estimate whose error is predicted."""
    errors: Callable[[Task, int], Vector]
    """Predicts the squared errors of a task's estimates, or their mean, for n_users; (n,)."""
    describe: Callable[[Design], str] = _describe_report
    """Describes a design's parameters and number of reports."""
    draft: Callable[[str, float, Requirements], TaskDraft | None] = _draft
    """Drafts a protocol's task with a local ε; None if no parameters have it."""
    is_floor: Callable[[TaskDraft], bool] = lambda _: False
    """Whether `errors` omits some that decoding adds."""
    smallest_share: Callable[[Task, int], float] = lambda *_: 0.0
    """Predicts the smallest share that is found with 95 % probability; 0 for other kinds."""
    largest_error: Callable[[Requirements], tuple[float, str]] = lambda _: (0.5, _GUESS)
    """Returns the standard error above which an estimate says nothing, and what it is."""
    unit: str = ""
    """Names the unit of the estimate, after its error; empty for shares."""


PLANNED_KINDS: Final[Mapping[Kind, PlannedKind]] = {
    "categorical": PlannedKind(
        *("a share", prefix_variances, _describe_items),
        largest_error=lambda target: (max(target.head), "the largest share of --head"),
    ),
    "ordered": PlannedKind("the share below an edge", prefix_variances, _describe_items),
    "string": PlannedKind(
        *("a rare text's share", _text_errors),
        draft=_text_draft,
        is_floor=lambda draft: not draft.labels,
    ),
    "open": PlannedKind(
        *("a rare value's share", _open_errors, _describe_open_report),
        smallest_share=_smallest_share,
    ),
    "mean": PlannedKind(
        *("the mean", _number_errors, _describe_number), largest_error=_half_range, unit=_UNIT
    ),
    "vector": PlannedKind(
        *("a mean", _number_errors, _describe_number), largest_error=_half_range, unit=_UNIT
    ),
    "key-value": PlannedKind("the share of a key that half of the users own", _pair_errors),
    "table": PlannedKind("a cell after least squares", _table_errors, _describe_tables),
}


def predicted_mse(task: Task, n_users: int) -> float:
    """Return the predicted mean squared error of a task's estimates."""
    return float(PLANNED_KINDS[task.kind].errors(task, n_users).mean())
