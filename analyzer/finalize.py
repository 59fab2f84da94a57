"""Estimate a batch's counts, for every kind of value, and build its result with its guarantees."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final, cast

import numpy as np

from shuffledp.analyzer.batch_counts import BatchCounts
from shuffledp.analyzer.estimation.histogram import estimate
from shuffledp.analyzer.estimation.shrinkage import shrink_to_zero
from shuffledp.analyzer.sentinels import SentinelMatches
from shuffledp.common.accounting.guarantees import guarantees, published_claim
from shuffledp.common.mechanisms.base import Counts, Mechanism, Mixture, Randomizer, Reports, Tally
from shuffledp.common.mechanisms.count_law import Draws
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.mechanisms.discovery.prefix_search import find_codes, spell
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.numeric.number import MeanMechanism
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages import result
from shuffledp.common.messages.batch import BatchManifest
from shuffledp.common.messages.guarantee import NONE_WAIVED, Waived
from shuffledp.common.messages.result import Estimate, FoundValues, Histogram, Result, ShareTables
from shuffledp.common.protocols import Kind
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import KeyValueSpec, OpenSpec, RangedSpec, RapporSpec
from shuffledp.common.task.task import Task


def mixture_of(
    task: Task, n_users: int, *, counted: int, padding: int = 0, refused: int = 0
) -> Mixture:
    """
    Return the composition of the counted reports: users' own and dummies.

    If nothing was refused, the number of users' dummies is exact: all counted reports except the
    users' own. Of the reports that the shuffler added and kept, only the distribution is known.

    Where the shuffler adds dummies, every refused report is a user's, since an honest shuffler's
    dummies are never refused; if it keeps a share κ of reports, one refused stands for 1/κ users.
    Otherwise refusals are assumed proportional: users' own reports and dummies lose the same share.

    Where each of n users adds a dummy of each of d items with chance c, the total D of dummies is
    known. Given D, the number of dummies of one item is hypergeometric: D draws from n·d possible
    dummies, of which n name the item. At D's mean n·d·c its variance is n·c·(1-c)·(1 - 1/d), up to
    a factor of 1 + 1/(n·d - 1).

    `padding` counts the null reports that were accepted.
    """
    shuffler, dummies = task.shuffler, task.dummies
    if not shuffler.only_permutes:
        noise = shuffler.noises[-1]
        mean, spread = noise.moments()
        refused_users = refused / task.own_reports / shuffler.keep_probability
        return Mixture(
            n_real=max(1.0, n_users - refused_users),
            keep_probability=shuffler.keep_probability,
            item_mean=mean,
            item_variance=spread,
            item_law=tuple(Draws(*each) for each in noise.summed),
            total_is_known=False,
        )
    accepted = counted + padding
    n_real = min(n_users * accepted / max(1, accepted + refused), counted / task.own_reports)
    n_dummies = counted - n_real * task.own_reports
    chance, domain_size = dummies.item_chance, task.domain_size
    if not chance:
        return Mixture(n_real=n_real, n_dummies=n_dummies)
    return Mixture(
        n_real=n_real,
        item_mean=n_dummies / domain_size,
        item_variance=n_real * chance * (1 - chance) * (1 - 1 / domain_size),
        item_law=(Draws.coins(round(n_real), max(0.0, n_dummies) / (n_real * domain_size)),),
    )


def mixture_of_result(task: Task, released: Result) -> Mixture:
    """Return the composition of the counted reports of a released batch, up to rounding."""
    refused = sum(released.refused.values())
    accepted = released.n_reports - refused
    own = released.n_users * task.own_reports * accepted / max(1, released.n_reports)
    counted = min(accepted, released.n_dummies + round(own))
    padding = accepted - counted
    return mixture_of(task, released.n_users, counted=counted, padding=padding, refused=refused)


def estimate_result(task: Task, randomizer: Randomizer, cells: Tally, mixture: Mixture) -> Estimate:
    """
    Estimate a task's result from its randomizer's tally, for every kind of value. Pure.

    Items, digits and tables use the mixture.
    """
    return _ESTIMATORS[task.kind](task, randomizer, cells, mixture)


def _histogram(task: Task, randomizer: Randomizer, cells: Counts, mixture: Mixture) -> Histogram:
    mechanism = cast("Mechanism", randomizer)
    return estimate(mechanism, cells, mixture=mixture, refinement=task.refinement)


def _bit_table(task: Task, _randomizer: Randomizer, cells: Counts, _: Mixture) -> result.BitTable:
    spec = spec_as(task.mechanism, RapporSpec)
    sizes, counts = cells[: spec.cohorts], cells[spec.cohorts :]
    return result.BitTable(cohort_sizes=sizes, bit_counts=counts.reshape(spec.cohorts, spec.bits))


def _means(task: Task, randomizer: Randomizer, cells: Counts, mixture: Mixture) -> result.Means:
    """
    Return means and errors in the task's units.

    An attribute with too few reports gets the middle of the range, and half the range as error: no
    distribution on the range has a larger standard deviation (Popoviciu's inequality [BD00]).
    """
    spec, mechanism = spec_as(task.mechanism, RangedSpec), cast("MeanMechanism", randomizer)
    half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
    moments = mechanism.moments(cells, mixture)
    known = np.isfinite(moments.variances)
    variances = np.where(known, moments.variances, 1.0)
    means = np.where(known, moments.means, 0.0)
    filled = dataclasses.replace(moments, means=means, variances=variances)
    return result.Means(
        means=middle + half * means,
        standard_errors=half * np.sqrt(variances),
        shrunk=middle + half * np.clip(shrink_to_zero(filled), -1, 1),
        mse_theory=float(half**2 * variances.mean()),
        rounding_error=half * moments.rounding**0.5,
        unbiased=moments.unbiased,
    )


def _key_values(task: Task, randomizer: Randomizer, cells: Counts, _: Mixture) -> result.KeyValues:
    spec, priv_kv = spec_as(task.mechanism, KeyValueSpec), cast("PrivKv", randomizer)
    half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
    estimated = priv_kv.estimate(cells)
    owners: result.Owners | None = None
    if priv_kv.key_signal:
        of_owners = priv_kv.without_fakes(estimated)
        owners = result.Owners(
            frequencies=estimated.frequencies,
            frequency_errors=estimated.frequency_errors,
            means=middle + half * of_owners.means,
            mean_errors=half * of_owners.mean_errors,
        )
    return result.KeyValues(
        means_with_fakes=middle + half * estimated.means_with_fakes,
        errors_with_fakes=half * estimated.errors_with_fakes,
        reports=cells.sum(axis=1),
        owners=owners,
    )


def _found_values(task: Task, randomizer: Randomizer, reports: Reports, _: Mixture) -> FoundValues:
    spec, mechanism = spec_as(task.mechanism, OpenSpec), cast("PrefixHashing", randomizer)
    if spec.encoding == "spell":
        return spell(mechanism, reports, task.labels)
    return find_codes(mechanism, reports, text=spec.encoding == "text")


def _share_tables(_: Task, randomizer: Randomizer, cells: Counts, mixture: Mixture) -> ShareTables:
    return cast("Tables", randomizer).estimate(cells, mixture.n_real)


_ESTIMATORS: Final[Mapping[Kind, Callable[[Task, Randomizer, Tally, Mixture], Estimate]]] = {
    "categorical": _histogram,
    "ordered": _histogram,
    "string": _bit_table,
    "open": _found_values,
    "mean": _means,
    "vector": _means,
    "key-value": _key_values,
    "table": _share_tables,
}


def build_result(
    batch: BatchManifest,
    task: Task,
    randomizer: Randomizer,
    counts: BatchCounts,
    matches: SentinelMatches,
    *,
    elapsed: Callable[[], float],
    waived: Waived = NONE_WAIVED,
) -> Result:
    """
    Build the result of a batch from its manifest and counts, both without its sentinels.

    The estimate relies on `mixture_of`'s assumption about refused reports; the guarantees assume
    that each of them is a different honest user's, and nothing that a waived check was for.

    `elapsed` is a clock's, to measure the duration.
    """
    started = elapsed()
    mixture = mixture_of(
        task, batch.n_users, counted=counts.counted, padding=counts.null, refused=counts.n_refused
    )
    estimated = estimate_result(task, randomizer, counts.cells, mixture)
    own = mixture.n_real * task.own_reports
    guaranteed = guarantees(task, batch.n_users, counts.n_refused, waived)
    return Result(
        task_digest=batch.task_digest,
        protocol=task.protocol,
        mechanism=task.mechanism.name,
        buckets=task.mechanism.item_buckets,
        local_epsilon=task.local_epsilon,
        n_users=batch.n_users,
        n_reports=batch.n_reports,
        n_dummies=round(max(0.0, counts.counted - own * mixture.keep_probability)),
        refused=counts.refused,
        estimate=estimated,
        guarantees=guaranteed,
        published_claim=published_claim(task, batch.n_users, counts.n_refused, waived),
        waived=waived,
        open_seconds=counts.open_seconds,
        estimate_seconds=elapsed() - started,
        n_sentinels=matches.n_acknowledged,
        n_sentinels_missing=matches.n_missing,
        n_sentinels_repeated=matches.n_repeated,
        warnings=randomizer.unexplained(counts.cells, round(mixture.n_real)),
    )
