"""Predicted errors of planned tasks and words for their parameters, a row for each kind. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from shuffledp.analyzer.finalize import mixture_of
from shuffledp.common.mechanisms import registry
from shuffledp.common.mechanisms.base import Mixture, Vector
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.discovery.prefix_hashing import FIRST_BYTES, PrefixHashing
from shuffledp.common.mechanisms.discovery.prefix_search import BYTES, critical_count, sure_share
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.key_value.estimator import PairEstimates, PairEstimator
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.rappor import bloom
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import OpenSpec, RangedSpec, RapporSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import DigitSpec
from shuffledp.lab.planning.requirements import Requirements

_MOST_SEEDS: Final = 2**17
"""Largest hash family for exact covariances: all designs of a plan then take about a second."""
_OWNERS: Final = 0.5
"""Share of owners for which the error of shares is predicted."""
_OPEN_FORMS: Final = {
    "text": "texts of at most {} bytes, ",
    "code": "integers of {} bytes, ",
    "hash": "texts by hashes of {} bytes, ",
}
_GUESS: Final = "the most that a guess of the middle is wrong by"
_UNIT: Final = " in the unit of the values"


def share_variances(task: Task, n_users: int, head: Sequence[float] = ()) -> Vector:
    """
    Return the predicted variance of each share if the first ones are `head`, and the others alike.

    Shape (domain_size,). Of large hash families to a percent, evenly corrected.
    """
    size = task.domain_size
    shares = np.full(size, (1 - math.fsum(head)) / max(1, size - len(head)))
    shares[: len(head)] = head
    return _variances(_covariance(task, n_users, shares))


def _covariance(task: Task, n_users: int, shares: Vector) -> ShareCovariance:
    """Return the covariances of the shares that n_users are expected to have."""
    sent = n_users * (task.own_reports + task.dummies.expected_per_user)
    return ShareCovariance.of(task, shares, mixture_of(task, n_users, counted=round(sent)))


def _variances(covariance: ShareCovariance) -> Vector:
    mechanism, shares = covariance.mechanism, covariance.shares
    if isinstance(mechanism, LocalHashing) and mechanism.family.seeds > _MOST_SEEDS:
        variances = mechanism.variance(shares, covariance.mixture)
        return variances - _variance_of_total(mechanism, covariance.mixture) / len(shares) ** 2
    return covariance.of_shares()


def _variance_of_total(mechanism: LocalHashing, mixture: Mixture) -> float:
    """
    Approximate the variance of the sum of all debiased shares of hashed reports, evenly held.

    Only seeds that see no digit but the leading one support whole slices of items: of the others,
    items are taken as independent. From no paper; a test compares it with exact covariances.
    """
    family, p, size = mechanism.family, mechanism.p, mechanism.domain_size
    q, slices, leading = 1 / family.q, family.slices, family.q ** (1.0 - family.t)
    # Probabilities that such a report supports one, or two, given items other than its user's.
    of_slice = (1 - q) * (p + (1 - p) * (slices - 1) / (family.q - 1)) / slices
    one, two = p * q + of_slice, p * q + of_slice / slices
    rest = (q - leading * one) / (1 - leading)
    covariance = leading * two + (1 - leading) * rest**2 - q**2
    others = (size - 1) * (q * (1 - q) + (size - 2) * covariance)
    counted = mixture.n_real * (p * (1 - p) + others) + mixture.n_dummies * size * q * (1 - q)
    return float(counted / (mixture.n_real * (p - q)) ** 2)


@lru_cache(maxsize=16)
def prefix_variances(task: Task, n_users: int) -> Vector:
    """
    Return the predicted variance of the share of users up to each bucket of their group.

    Assumes evenly spread values, and for hashed reports errors that are alike for all pairs.
    Shape (domain_size,).
    """
    size, items = task.domain_size, np.arange(1.0, task.domain_size // task.groups + 1)
    covariance = _covariance(task, n_users, np.full(size, 1 / size))
    if isinstance(covariance.mechanism, LocalHashing):  # exact variances take seconds per design
        # Pairs alike, and a total without error: each covariance is -each / (size - 1).
        each = _variances(covariance).mean()
        return np.tile(each * items * (size - items) / (size - 1), task.groups)
    return covariance.of_prefixes()


def _text_errors(task: Task, n_users: int) -> Vector:
    """
    Return the variance of the estimated share of a rare text that is the only candidate.

    Further candidates and frequent other texts add errors. For labels it is the noise of the
    label's bit, p*(1-p*) / (n·(q*-p*)²) [EPK14]. Bit i of a Bloom filter is also set by a share
    b_i of users with other texts, which is noise; hash collisions in the m cohorts add a
    variance of b_i(1-b_i)(1-1/m).
    """
    spec, rappor = spec_as(task.mechanism, RapporSpec), registry.rappor_of(task)
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
    mechanism = registry.prefix_hashing_of(task)
    per_report = mechanism.q * (1 - mechanism.q) / (mechanism.p - mechanism.q) ** 2
    return np.array([per_report * mechanism.levels / n_users])


def _open_figures(task: Task, n_users: int) -> dict[str, float]:
    """Return the smallest share that is found with 95 % probability."""
    return {"smallest_share": planned_share(spec_as(task.mechanism, OpenSpec), n_users)}


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
    return np.array([half**2 * registry.mean_mechanism_of(task).worst_variance(n_users)])


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


def _table_figures(task: Task, n_users: int) -> dict[str, float]:
    """
    Return the number of tables, and root mean squares of standard errors in users.

    Those of cells are of the tables of two attributes if there are any. A value's raw error is that
    of the table that measures it best.
    """
    tables = Tables.of(task)
    cells, margins = tables.variances(n_users)
    of_views = [view.item_variance(n_users) for view in tables.views]
    raw = [each * (1 - 1 / size) for each, size in zip(of_views, tables.sizes, strict=True)]
    most, values = max(map(len, tables.tables)), tables.attribute_sizes
    sizes = [math.prod(shape) * (len(shape) == most) for shape in tables.shapes]
    alone = [
        min(
            each * size / values[attribute] * (1 - 1 / values[attribute])
            for names, each, size in zip(tables.tables, of_views, tables.sizes, strict=True)
            if attribute in names
        )
        for attribute in range(len(values))
    ]
    return {
        "tables": len(tables.tables),
        "sd_cell_raw": math.sqrt(np.average(raw, weights=sizes)),
        "sd_cell": math.sqrt(np.average(cells, weights=sizes)),
        "sd_margin_raw": math.sqrt(np.average(alone, weights=values)),
        "sd_margin": math.sqrt(np.average(margins, weights=values)),
    }


def _describe_report(task: Task) -> str:
    return f"local epsilon {rounded_up(task.local_epsilon)}; one report"


def _describe_number(task: Task) -> str:
    spec = task.mechanism
    if not isinstance(spec, DigitSpec):
        return _describe_report(task)
    alike = slice(len(spec.radices))  # the digits of every number
    means, of = [view.dummies.expected_per_user for view in task.views[alike]], "per user"
    if not any(means):
        means = [noise.moments()[0] for noise in task.shuffler.noises[alike]]
        of = f"of each value by {'both shufflers' if task.relay else 'the shuffler'}"
    return (
        f"{spec.points:,} points, in digits of {', '.join(map(str, spec.radices))} values with "
        f"{', '.join(f'{mean:.3g}' for mean in means)} dummies {of}; "
        f"{messages_of(task):.4g} messages"
    )


def _describe_open_report(task: Task) -> str:
    spec = spec_as(task.mechanism, OpenSpec)
    return f"{_OPEN_FORMS[spec.encoding].format(spec.code_bytes)}{_describe_report(task)}"


def _describe_items(task: Task) -> str:
    hashed, number = task.mechanism.hash_buckets, messages_of(task)
    name = f"local hashing into {hashed} buckets" if hashed else "plain items"
    if task.mechanism.fan_out:
        levels = f"{task.own_reports} levels with a fan-out of {task.mechanism.fan_out}"
        name = f"a hierarchy of {levels}"
    plain = math.isinf(task.local_epsilon)
    noise = "without local noise" if plain else f"with local epsilon {task.local_epsilon:g}"
    mean, _ = task.shuffler.noises[-1].moments()
    by_shuffler = f", {mean:.4g} dummies per item by the shuffler" if mean else ""
    if task.relay:
        first, second = (task.hop(number).noises[-1].words for number in (0, 1))
        by_shuffler = f", dummies per item by the first shuffler: {first}, by the second: {second}"
    messages = "one message" if number == 1 else f"{number:.5g} messages"
    return f"{name} {noise}{task.dummies.clause or by_shuffler}; {messages}"


def _describe_tables(task: Task) -> str:
    by = "both shufflers" if task.relay else "the shuffler"
    by_shuffler = f", {task.shuffler.expected_dummies:,} dummies of all cells by {by}"
    return (
        f"true cells of {len(task.views):,} tables without local noise"
        f"{task.dummies.clause or by_shuffler}; {messages_of(task):.5g} messages"
    )


def _half_range(target: Requirements) -> tuple[float, str]:
    numbers = target.draft_fields.get("numbers") or NumberDraft()
    return (numbers.high - numbers.low) / 2, _GUESS


def messages_of(task: Task) -> float:
    """Return the expected reports of a user, dummies and the null reports of clusters included."""
    return task.own_reports + task.dummies.expected_sent


class PlannedKind(NamedTuple):
    """The planner's part of one kind of value."""

    error_of: str
    """The estimate whose error is predicted."""
    errors: Callable[[Task, int], Vector]
    """Predicts the squared errors of a task's estimates, or their mean, for n_users; (n,)."""
    describe: Callable[[Task], str] = _describe_report
    """Describes a task's parameters and number of reports."""
    of_items: bool = False
    """Whether plans state the errors of single items, and which constraints limit them."""
    is_floor: Callable[[Task], bool] = lambda _: False
    """Whether `errors` omits some that decoding adds."""
    messages_by: str = ""
    """What takes the messages, and the way to fewer, as the end of a sentence."""
    largest_error: Callable[[Requirements], tuple[float, str]] = lambda _: (0.5, _GUESS)
    """Returns the standard error above which an estimate says nothing, and what it is."""
    unit: str = ""
    """Names the unit of the estimate, after its error; empty for shares."""
    figures: Callable[[Task, int], Mapping[str, float]] = lambda *_: {}
    """Predicts further figures, for programs."""
    sentence: str = ""
    """The further figures in words, with their names in braces."""


PLANNED_KINDS: Final[Mapping[Kind, PlannedKind]] = {
    "categorical": PlannedKind(
        *("a share", share_variances, _describe_items),
        of_items=True,
        largest_error=lambda target: (max(target.head), "the largest expected share"),
    ),
    "ordered": PlannedKind("the share below an edge", prefix_variances, _describe_items),
    "string": PlannedKind(
        *("a rare text's share", _text_errors), is_floor=lambda task: not task.labels
    ),
    "open": PlannedKind(
        *("a rare value's share", _open_errors, _describe_open_report), figures=_open_figures
    ),
    "mean": PlannedKind(
        *("the mean", _number_errors, _describe_number), largest_error=_half_range, unit=_UNIT
    ),
    "vector": PlannedKind(
        *("a mean", _number_errors, _describe_number), largest_error=_half_range, unit=_UNIT
    ),
    "key-value": PlannedKind("the share of a key that half of the users own", _pair_errors),
    "table": PlannedKind(
        *("a cell after least squares", _table_errors, _describe_tables),
        messages_by=": one for each table (fewer with fewer pairs), and users' dummies (none with "
        "trust=shuffler-dummies)",
        figures=_table_figures,
        sentence="Standard errors in users: a cell of a table {sd_cell_raw:.4g}, after least "
        "squares {sd_cell:.4g}; a value of one attribute {sd_margin_raw:.4g} by one table, after "
        "least squares {sd_margin:.4g}.",
    ),
}


def predicted_mse(task: Task, n_users: int) -> float:
    """Return the predicted mean squared error of a task's estimates."""
    return float(PLANNED_KINDS[task.kind].errors(task, n_users).mean())
