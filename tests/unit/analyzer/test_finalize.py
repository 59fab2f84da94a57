import dataclasses
import math
from contextlib import nullcontext
from functools import cache
from typing import Final

import numpy as np
import pytest

from shuffledp.analyzer.batch_counts import BatchCounts, refuse_excess_padding
from shuffledp.analyzer.estimation.expectation_maximization import (
    maximize_likelihood,
    smoothed_likelihood,
)
from shuffledp.analyzer.estimation.projection import norm_sub
from shuffledp.analyzer.finalize import build_result, estimate_result, mixture_of, mixture_of_result
from shuffledp.analyzer.sentinels import SentinelMatches
from shuffledp.common.accounting.guarantees import guarantees_under, published_claim
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.crypto.hpke import report_context
from shuffledp.common.errors import WireError
from shuffledp.common.mechanisms.base import Counts, Mixture
from shuffledp.common.mechanisms.numeric.coordinate_sampling import MultiRphm
from shuffledp.common.mechanisms.registry import mechanism_of, randomizer_of
from shuffledp.common.mechanisms.support import SupportCounting
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.messages.guarantee import claimed
from shuffledp.common.messages.result import Estimate, Histogram, KeyValues, Means, Result
from shuffledp.common.messages.submission import plain_reports
from shuffledp.common.protocols import PROTOCOLS, protocols_of
from shuffledp.common.task import shuffler_spec
from shuffledp.common.task.draft import PairDraft
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.task import Task
from shuffledp.lab.simulate.collection import collect
from shuffledp.user_agent.contribution import encoder_for
from tests.support.analyzer_core import AnalyzerCore
from tests.support.chains import chain
from tests.support.kind_tasks import VALUES, kind_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task, unclaimed_task
from tests.support.reductions import geometric_noise
from tests.support.tables import table
from tests.support.tasks import SHUFFLER_NOISE, PublishedTask, published

_FIXED = published(dummies_per_user=1)
_FRACTIONAL = published(dummies_per_user=1.25)
_PLAIN: Final = SHUFFLER_NOISE | {"domain_size": 5, "delta": 1e-2, "n_min": 3, "target_size": 5}
_EACH: Final = ItemDummies(trials=5, extra_weight=EXTRA_WEIGHT_SUM // 4, most=5)
_AUE: Final = {"protocol": "aue", "n_min": 100, "target_size": 100}
_PADDED: Final = published(**_PLAIN | _AUE, dummies=_EACH)


def _finalize(
    case: PublishedTask, counts: BatchCounts, n_reports: int | None = None, n_users: int = 100
) -> Result:
    """Build the result of a batch, of a hundred users by default."""
    manifest = BatchManifest(
        task_digest=case.signed.digest(),
        batch_id=BatchId(bytes(16)),
        n_users=n_users,
        n_reports=n_reports or counts.counted + counts.null + counts.n_refused,
    )
    counts = refuse_excess_padding(counts, case.task, manifest)
    matches = SentinelMatches(sentinels=(), positions={})
    mechanism = mechanism_of(case.task)
    return build_result(manifest, case.task, mechanism, counts, matches, elapsed=lambda: 0.0)


def _counts(
    task: Task,
    *,
    own: int,
    dummies: int = 0,
    null: int = 0,
    unreadable: int = 0,
    malformed: int = 0,
) -> BatchCounts:
    """Count reports of users who all hold item 0, and dummies."""
    mechanism, rng = mechanism_of(task), np.random.default_rng(1)
    reports = np.concatenate(
        [mechanism.randomize(np.zeros(own, np.int64), rng), mechanism.dummies(dummies, rng)]
    )
    return BatchCounts(
        cells=mechanism.tally(reports),
        counted=own + dummies,
        null=null,
        refused={"repeated": 0, "unreadable": unreadable, "malformed": malformed},
        open_seconds=0.0,
    )


def test_the_number_of_dummies_is_exact_without_refusals() -> None:
    """
    131, not the 125 expected; the estimate subtracts just those, and is corrected to sum to 1.

    The correction is nearly the same for all items of hashed reports.
    """
    task = _FRACTIONAL.task
    counts = _counts(task, own=100, dummies=131)
    result = _finalize(_FRACTIONAL, counts)
    mechanism = mechanism_of(task)
    assert isinstance(mechanism, SupportCounting)
    support = mechanism.support_counts(counts.cells)
    expected = (support - (100 + 131) / 13) / (100 * (mechanism.p - 1 / 13))

    assert 131 == result.n_dummies
    assert 0 == sum(result.refused.values())
    corrected = expected - result.histogram.frequencies
    assert expected.sum() - 1 == pytest.approx(corrected.sum())
    assert np.full(len(expected), corrected.mean()) == pytest.approx(corrected, rel=0.5)
    assert result.histogram.frequencies.sum() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    ("case", "counted", "dummies", "malformed"),
    [
        # A fifth of everything was unreadable: a fifth of users' own reports and of dummies.
        (_FRACTIONAL, {"own": 80, "dummies": 100, "unreadable": 45}, 100, 0),
        (_FIXED, {"own": 80, "dummies": 80, "unreadable": 40}, 80, 0),
        # Forty users send malformed reports only: sixty users and their 75 dummies are left.
        (_FRACTIONAL, {"own": 60, "dummies": 75, "malformed": 90}, 75, 90),
        # Uniform dummies have no null reports among them.
        (_FRACTIONAL, {"own": 100, "dummies": 25, "null": 5}, 29, 5),
        # A hundred users have room for five null reports each; further ones are malformed.
        (_PADDED, {"own": 100, "dummies": 500}, 500, 0),
        (_PADDED, {"own": 100, "null": 500}, 0, 0),
        (_PADDED, {"own": 80, "dummies": 19, "null": 501}, 0, 1),
    ],
)
def test_refusals_are_taken_to_be_proportional(
    case: PublishedTask, counted: dict[str, int], dummies: int, malformed: int
) -> None:
    """Users' own reports and dummies are refused alike, excess null reports included."""
    result = _finalize(case, _counts(case.task, **counted))

    assert (dummies, malformed) == (result.n_dummies, result.refused["malformed"])


def test_the_number_of_dummies_is_never_negative() -> None:
    """A single counted report is taken for a user's."""
    counts = _counts(_PADDED.task, own=1, null=599)
    result = _finalize(_PADDED, counts)

    assert 0 == result.n_dummies
    assert np.isfinite(result.histogram.frequencies).all()


def test_every_refused_report_weakens_the_guarantee_against_the_analyzer() -> None:
    """Every cause counts, excess padding included; the papers' claims weaken too."""
    task = _FIXED.task
    counts = _counts(task, own=90, dummies=95, null=2, unreadable=5, malformed=8)
    result = _finalize(_FIXED, counts)
    n_refused = 5 + 8 + 2

    assert n_refused == sum(result.refused.values())
    assert guarantees_under(PrivacyParameters.of(task), 100, n_refused) == result.guarantees
    assert published_claim(task, 100, n_refused) == result.published_claim
    fewer = guarantees_under(PrivacyParameters.of(task), 100, n_refused - 1)
    assert claimed(fewer).epsilon < claimed(result.guarantees).epsilon


_COINS: Final = shuffler_spec.ShufflerSpec(noise=shuffler_spec.BinomialNoise(trials=60))
_SAMPLED: Final = dataclasses.replace(_COINS, keep_weight=shuffler_spec.KEEP_SUM // 2)
_SLOPES: Final = shuffler_spec.GeometricNoise(
    peak=12,
    left_weight=shuffler_spec.RATIO_SUM * 3 // 4,
    right_weight=shuffler_spec.RATIO_SUM // 2,
    most=60,
)
_FLANKS: Final = shuffler_spec.ShufflerSpec(noise=_SLOPES)
_CASES: Final = {
    "sbin": published(**_PLAIN, shuffler=_COINS),
    "sbin, sampled": published(**_PLAIN, shuffler=_SAMPLED),
    "sageo": published(**_PLAIN | {"protocol": "sageo", "shuffler": _FLANKS}),
    "two shufflers": published(**_PLAIN | chain(_SLOPES, geometric_noise(3, 0.25, 0.75, 30))),
    "aue": _PADDED,
}
_SLOW: Final = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("sbin", "sageo", "aue", "two shufflers")
]
_BATCHES: Final = 500
_USERS: Final = np.array([60, 30, 0, 9, 1])


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(0.0, id="nothing lost", marks=pytest.mark.slow),
        pytest.param(0.2, id="a fifth lost"),
    ],
)
@pytest.mark.parametrize("name", ["sbin, sampled", *_SLOW])
def test_estimates_are_unbiased_with_the_stated_error(name: str, lost: float) -> None:
    """
    500 batches of a hundred users: the mean within nine standard errors of the truth, and the
    stated squared error within 25 % of the real one, or 35 % below it if a fifth is lost: which
    users' reports are lost is random too, and the stated error does not include that.

    Lost reports are unreadable, users' own and their dummies alike; the shuffler's dummies never
    are. Seed 1; Student's t with 499 degrees of freedom exceeds nine with probability 1e-17, and
    the ratio, from .80 to 1.03 with a standard deviation of .035 at most, fails with 1e-7.
    """
    case, rng = _CASES[name], np.random.default_rng(1)
    task, mechanism = case.task, mechanism_of(case.task)
    truth, estimates, stated = _USERS / 100, [], []
    for _ in range(_BATCHES):
        kept_null = 0
        if task.shuffler.only_permutes:
            counted = collect(task, mechanism, _USERS, rng, one_by_one=True)
            cells = rng.binomial(counted.cells, 1 - lost)
            null = 100 * task.lengths[-1] - counted.n_reports
            kept_null = int(rng.binomial(null, 1 - lost))
            total = counted.n_reports + null
            refused = total - int(cells.sum()) - kept_null
        else:
            readable = rng.binomial(_USERS, 1 - lost)
            cells = collect(task, mechanism, readable, rng, one_by_one=True).cells
            refused = int(rng.binomial(100 - readable.sum(), task.shuffler.keep_probability))
            total = int(cells.sum()) + refused
        counts = BatchCounts(
            cells=cells,
            counted=int(cells.sum()),
            null=kept_null,
            refused={"repeated": 0, "unreadable": refused, "malformed": 0},
            open_seconds=0.0,
        )
        histogram = _finalize(case, counts, total).histogram
        estimates.append(histogram.frequencies)
        stated.append(histogram.mse_theory)
    errors = np.array(estimates) - truth
    spread = errors.std(axis=0) / math.sqrt(_BATCHES)

    assert (np.abs(errors.mean(axis=0)) <= 9 * spread + 1e-12).all()
    assert (0.65 if lost else 0.75) < float(np.mean(stated) / (errors**2).mean()) < 1.25


@pytest.mark.parametrize(
    ("spec", "reports", "allowed"),
    [
        (_COINS, 3, False),
        (_COINS, 87, False),
        (_COINS, 88, True),
        (_COINS, 218, True),
        (_COINS, 219, False),
        (_SAMPLED, 74, False),
        (_SAMPLED, 150, True),
    ],
)
async def test_an_implausible_number_of_reports_is_refused(
    core: AnalyzerCore, spec: shuffler_spec.ShufflerSpec, reports: int, *, allowed: bool
) -> None:
    """Far from the 153 expected: reports were lost or added."""
    signed = await core.publish(**_PLAIN, shuffler=spec)
    seal = core.keys.reports.public_key().sealer(report_context(signed.digest()))
    sealed = [seal(each.tobytes()) for each in plain_reports(np.arange(reports) % 5)]
    manifest = dataclasses.replace(core.manifest(3), n_reports=reports)
    with nullcontext() if allowed else pytest.raises(WireError, match="reports are announced"):
        await core.deliver_parts(manifest, sealed)
        await core.settle()
        assert reports == (await core.result()).n_reports


@pytest.mark.parametrize("items", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_stated_error_holds_for_few_items(items: int) -> None:
    """
    The known total of the dummies reduces the error by the factor 1 - 1/items.

    4000 batches of a hundred users, seed 2: the ratio of variances has a standard deviation of
    about 2.5 %, and fails by chance beyond 15 % with probability below 1e-8; without the factor
    (1 - 1/items) it would be .5 or .67.
    """
    distribution = dataclasses.replace(_EACH, trials=items, most=items)
    task = published(**_PLAIN | _AUE | {"domain_size": items}, dummies=distribution).task
    mechanism, rng = mechanism_of(task), np.random.default_rng(2)
    users = np.array([60, 40, 0][:items])
    errors = []
    for _ in range(4000):
        counted = collect(task, mechanism, users, rng, one_by_one=False)
        mixture = mixture_of(task, 100, counted=counted.n_reports)
        errors.append(mechanism.debias(counted.cells, mixture) - users / 100)
    stated = float(mechanism.variance(users / 100, mixture).mean())

    assert 0.85 < float(np.mean(np.square(errors))) / stated < 1.15


_PEOPLE: Final = 1500


def _estimate(task: Task, cells: Counts) -> Estimate:
    return estimate_result(task, randomizer_of(task), cells, Mixture(n_real=_PEOPLE))


@cache
def _collected(protocol: str, people: int = _PEOPLE) -> Estimate:
    return _reported(kind_task(protocol), people)


def _reported(task: Task, people: int) -> Estimate:
    """Let people who all hold the same value report, seed 9, as their devices lay it out."""
    rng = np.random.default_rng(9)
    randomizer, lay_out = randomizer_of(task), encoder_for(task, None)
    reports = [randomizer.randomize(lay_out(VALUES[task.kind], rng), rng) for _ in range(people)]
    empty = randomizer.randomize(lay_out(VALUES[task.kind], rng), rng)[:0]
    return _estimate(task, randomizer.tally(np.concatenate([empty, *reports])))


@pytest.mark.parametrize("protocol", [*protocols_of("mean"), *protocols_of("vector")])
def test_means_are_in_the_units_of_the_task(protocol: str) -> None:
    """Each mean is within seven errors of what everybody holds; Multi-RPHM has its exact bias."""
    # Seed 9; fails by chance with probability below 1e-9 (twenty-five figures).
    task, found = kind_task(protocol), _collected(protocol)
    assert isinstance(found, Means)
    expected = np.array(VALUES[task.kind])
    if isinstance(randomizer := randomizer_of(task), MultiRphm):
        expected += 2 * randomizer.bias((expected[np.newaxis] - 3) / 2)  # marks are 3 - 2 to 3 + 2
    off = found.means - expected

    assert (np.abs(off) <= 7 * found.standard_errors).all()
    assert pytest.approx((found.standard_errors**2).mean()) == found.mse_theory


@table(
    ("protocol", "middle", "half"),
    [(name, 12, 12) for name in protocols_of("mean") if not PROTOCOLS[name].noiseless]
    + [(name, 3, 2) for name in protocols_of("vector") if not PROTOCOLS[name].noiseless],
)
def test_a_mean_without_reports_is_the_middle_of_the_range(
    protocol: str, middle: float, half: float
) -> None:
    """The mean's error is half the range; of true digits, some are always counted."""
    found = _collected(protocol, 0)
    assert isinstance(found, Means)

    assert {middle} == set(found.means.tolist()) == set(found.shrunk.tolist())
    assert {half} == set(found.standard_errors.tolist())
    assert half**2 == found.mse_theory


def test_pairs_are_in_the_units_of_the_task() -> None:
    """Everybody owns keys 0 and 5 and gives them 4.5 and 0 stars of 5; nobody owns the others."""
    # Seed 9; fails by chance with probability below 1e-9 (eight figures).
    found = _collected("priv-kv")
    assert isinstance(found, KeyValues)
    owners = found.owners
    assert owners is not None
    off = owners.frequencies - [1, 0, 0, 0, 0, 1]

    assert (np.abs(off) <= 7 * owners.frequency_errors).all()
    assert abs(found.means_with_fakes[0] - 4.5) <= 7 * found.errors_with_fakes[0]
    assert abs(found.means_with_fakes[5] - 0.0) <= 7 * found.errors_with_fakes[5]
    assert abs(owners.means[0] - 4.5) <= 7 * owners.mean_errors[0]
    assert abs(owners.means[5] - 0.0) <= 7 * owners.mean_errors[5]
    assert (found.errors_with_fakes < 1).all()


def test_a_fair_coin_for_keys_reveals_no_owners() -> None:
    """Owners of key 0 report 4.5 stars, and others report 4 for key 1, which is its fake."""
    # Seed 9; fails by chance with probability below 1e-9 (two figures).
    fakes = (1.0, 4.0, 2.0, 2.0, 2.0, 2.0)
    pairs = PairDraft(low=-1.0, high=5.0, key_share=0.0, fakes=fakes)
    found = _reported(kind_task("priv-kv", pairs=pairs), _PEOPLE)
    assert isinstance(found, KeyValues)
    off = found.means_with_fakes[:2] - [4.5, 4.0]

    assert found.owners is None
    assert _PEOPLE == found.reports.sum()
    assert (np.abs(off) <= 7 * found.errors_with_fakes[:2]).all()


@pytest.mark.parametrize("fakes", [(), (5.0, 4.5, 4.0, 1.0, 0.5, 0.0)])
def test_a_key_without_reports_is_unknown(fakes: tuple[float, ...]) -> None:
    """Half of all own it, with an error of a half; its mean is the middle of -1 .. 5."""
    task = kind_task("priv-kv", pairs=PairDraft(low=-1.0, high=5.0, fakes=fakes))
    found = _reported(task, 0)
    assert isinstance(found, KeyValues)

    owners = found.owners
    assert owners is not None

    assert {0.5} == set(owners.frequencies.tolist()) == set(owners.frequency_errors.tolist())
    for means, errors in (
        (owners.means, owners.mean_errors),
        (found.means_with_fakes, found.errors_with_fakes),
    ):
        assert ({2.0}, {3.0}) == (set(means.tolist()), set(errors.tolist()))


@table("refused", [0, 300])
@table("protocol", [name for name in ITEM_PROTOCOLS if "strings" not in name])
def test_shares_sum_to_one_whatever_was_refused(protocol: str, refused: int) -> None:
    """Also after padding, sampling, and dummies of either kind; shares are unrefined."""
    task = unclaimed_task(protocol)
    users = np.random.default_rng(3).multinomial(
        1000, np.full(task.domain_size, 1 / task.domain_size)
    )
    found = collect(task, mechanism_of(task), users, np.random.default_rng(4), one_by_one=False)
    mixture = mixture_of(task, 1100, counted=found.n_reports, padding=50, refused=refused)
    estimated = estimate_result(task, mechanism_of(task), found.cells, mixture)
    assert isinstance(estimated, Histogram)

    assert abs(estimated.frequencies.sum() - 1) < 1e-12


@pytest.mark.parametrize("protocol", ["ldp-grr", "ldp-blh", "ldp-sw", "sbin"])
def test_items_are_refined_by_the_protocols_refinement(protocol: str) -> None:
    """Norm-Sub, EM or EMS of the same counts, called directly."""
    task, rng = protocol_task(protocol), np.random.default_rng(9)
    mechanism = mechanism_of(task)
    cells = mechanism.tally(mechanism.randomize(rng.integers(0, 3, _PEOPLE), rng))
    found = _estimate(task, cells)
    assert isinstance(found, Histogram)

    mixture, size = Mixture(n_real=_PEOPLE), task.domain_size
    channel = mechanism.channel(mixture.real_share(size))
    if protocol in {"ldp-grr", "sbin"}:
        expected = norm_sub(mechanism.debias(cells, mixture))
    else:
        assert channel is not None
        refine = maximize_likelihood if protocol == "ldp-blh" else smoothed_likelihood
        expected = refine(cells, channel, size)
    assert expected.tolist() == found.refined.tolist()


@pytest.mark.parametrize("honest", [True, False])
def test_a_result_warns_of_clusters_that_honest_users_do_not_send(*, honest: bool) -> None:
    """Both totals are off if nobody adds any. Seed 2; fails by chance with probability 1e-6."""
    task = protocol_task("signed")
    mechanism, users = mechanism_of(task), np.full(30, 100)
    cells = np.concatenate([users, 0 * users])
    if honest:
        cells = mechanism.sample_cells(users, 0, np.random.default_rng(2))
    case = dataclasses.replace(published(), task=task)
    counts = dataclasses.replace(_counts(task, own=1), cells=cells, counted=int(cells.sum()))
    warnings = _finalize(case, counts, n_users=3000).warnings

    assert (0 if honest else 2) == len(warnings)
    assert all("3,000 honest users send" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("case", "counted"),
    [
        (_FIXED, {"own": 100, "dummies": 100}),
        (_FIXED, {"own": 80, "dummies": 80, "unreadable": 40}),
        (_FRACTIONAL, {"own": 100, "dummies": 120, "unreadable": 10}),
        (_PADDED, {"own": 90, "dummies": 90, "null": 300, "unreadable": 20}),
        (_PADDED, {"own": 100, "dummies": 140, "null": 260}),
    ],
)
def test_a_released_result_keeps_its_mixture(case: PublishedTask, counted: dict[str, int]) -> None:
    """The reports of 100 users, with refusals and padding; numbers of dummies are rounded."""
    counts = _counts(case.task, **counted)
    expected = mixture_of(
        case.task, 100, counted=counts.counted, padding=counts.null, refused=counts.n_refused
    )
    found = mixture_of_result(case.task, _finalize(case, counts))

    numbers, stated = (
        dataclasses.astuple(dataclasses.replace(each, item_law=()))[:5]
        for each in (expected, found)
    )
    assert numbers == pytest.approx(stated, abs=0.51)
