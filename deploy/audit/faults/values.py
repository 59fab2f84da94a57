"""Faults of randomizers of texts, numbers and pairs, and of what is estimated from them."""

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.band_response import BandResponse
from common.mechanisms.base import Counts, Reports, Vector
from common.mechanisms.key_value.estimator import ABSENT, OwnersMeans, PairEstimates
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.key_value.privkv import PrivKv
from common.mechanisms.numeric.coded_number import Spread, Totals
from common.mechanisms.numeric.coordinate_sampling import SampledCoordinates
from common.mechanisms.numeric.duchi import Duchi
from common.mechanisms.numeric.mean_est import MeanEst
from common.mechanisms.numeric.number import Moments, Numbers, to_grid
from common.mechanisms.rappor import permanent_response as permanent
from common.mechanisms.rappor.permanent_response import Packed
from common.mechanisms.rappor.rappor import Rappor
from common.mechanisms.weights import ResponseWeights
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault


def biased_sign() -> AbstractContextManager[None]:
    """Plant signs of which one in fifty is up, whatever was drawn."""
    honest = Duchi.encode

    def other(self: Duchi, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        codes = honest(self, numbers, rng)
        return np.where(rng.integers(0, 50, size=codes.shape) == 0, 1, codes)

    return planting.attribute(Duchi, "encode", other)


def noisy_sign() -> AbstractContextManager[None]:
    """Plant signs of which two in five are a fair coin besides."""
    honest = Duchi.encode

    def other(self: Duchi, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        codes = honest(self, numbers, rng)
        coins = rng.integers(0, 2, size=codes.shape)
        return np.where(rng.integers(0, 5, size=codes.shape) < 2, coins, codes)  # noqa: PLR2004

    return planting.attribute(Duchi, "encode", other)


def narrow_band() -> AbstractContextManager[None]:
    """Plant a band of which the last place falls on the last but one."""
    honest = BandResponse.randomize

    def other(
        self: BandResponse, values: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        places = honest(self, values, rng)
        narrower: NDArray[np.int64] = places - (places == values + self.width - 1)
        return narrower

    return planting.attribute(BandResponse, "randomize", other)


def heavy_band() -> AbstractContextManager[None]:
    """Plant places around the number with twice the weight that the task states."""
    honest = BandResponse.randomize

    def other(
        self: BandResponse, values: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        weights = ResponseWeights(true=2 * self.weights.true, other=self.weights.other)
        return honest(dataclasses.replace(self, weights=weights), values, rng)

    return planting.attribute(BandResponse, "randomize", other)


def ties_kept() -> AbstractContextManager[None]:
    """Plant corners on neither side that are never drawn again."""
    honest = MeanEst._draw  # the step that is broken

    def other(
        self: MeanEst, own: NDArray[np.uint8], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        corners, again = honest(self, own, rng)
        return corners, again[:0]

    return planting.attribute(MeanEst, "_draw", other)


def first_coordinates() -> AbstractContextManager[None]:
    """Plant reports on several numbers that are always about the first of them."""

    def other(self: Any, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        del rng
        return np.tile(np.arange(self.sampled, dtype=np.int64), (count, 1))

    return planting.attribute(SampledCoordinates, "_subsets", other)


def _owned(pairs: Pairs, reports: Reports, keys: int) -> NDArray[np.bool_]:
    owned, _ = pairs.look_up(reports["key"].astype(np.int64), keys)
    return owned


def owned_keys() -> AbstractContextManager[None]:
    """Plant keys that are drawn once more where the person does not own the first."""
    honest = PrivKv.randomize

    def other(self: PrivKv, pairs: Pairs, rng: np.random.Generator) -> Reports:
        first, second = (honest(self, pairs, rng) for _ in range(2))
        return np.where(_owned(pairs, first, self.keys), first, second)

    return planting.attribute(PrivKv, "randomize", other)


def truthful_fakes() -> AbstractContextManager[None]:
    """Plant people who never say that they own what they do not."""
    honest = PrivKv.randomize

    def other(self: PrivKv, pairs: Pairs, rng: np.random.Generator) -> Reports:
        reports = honest(self, pairs, rng)
        reports["said"][~_owned(pairs, reports, self.keys)] = ABSENT
        return reports

    return planting.attribute(PrivKv, "randomize", other)


def no_permanent_noise() -> AbstractContextManager[None]:
    """Plant permanent responses that are the filters themselves."""
    honest = permanent.respond

    def other(filters: Packed, streams: NDArray[np.uint8], permanent_weight: int) -> Packed:
        del permanent_weight
        return honest(filters, streams, 0)

    return planting.both(
        planting.function(honest, other), planting.attribute(permanent, "respond", other)
    )


def first_cohort() -> AbstractContextManager[None]:
    """Plant people who all say that they are of the first cohort."""
    honest = Rappor.randomize

    def other(self: Rappor, responses: Reports, rng: np.random.Generator) -> Reports:
        reports = honest(self, responses, rng)
        reports["cohort"] = 0
        return reports

    return planting.attribute(Rappor, "randomize", other)


def grid_rounded_down() -> AbstractContextManager[None]:
    """Plant numbers that are moved to the next grid point below them."""

    def other(values: Numbers, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
        if steps == 1:
            return to_grid(values, steps, rng)
        return np.floor((values + 1) * (steps / 2)).astype(np.int64)

    return planting.function(to_grid, other)


def wrong_worth() -> AbstractContextManager[None]:
    """Plant signs that are taken for a twentieth more than they stand for."""
    honest = Duchi.totals

    def other(self: Duchi, sums: Counts) -> Totals:
        found = honest(self, sums)
        return dataclasses.replace(found, first=1.05 * found.first)

    return planting.attribute(Duchi, "totals", other)


def too_sure_of_means() -> AbstractContextManager[None]:
    """Plant variances of means that are half of what they should be."""
    honest = Spread.moments

    def other(self: Spread, totals: Totals, n_reports: int, sampling: float) -> Moments:
        found = honest(self, totals, n_reports, sampling)
        return dataclasses.replace(found, variances=found.variances / 2)

    return planting.attribute(Spread, "moments", other)


def noise_of_keys_left() -> AbstractContextManager[None]:
    """Plant shares of owners from which the noise of keys is not all taken off."""
    return planting.attribute(PrivKv, "p_key", property(lambda _: 0.9))


def fakes_left() -> AbstractContextManager[None]:
    """Plant means of owners that are those with fakes."""

    def other(_self: PrivKv, estimates: PairEstimates) -> OwnersMeans:
        return OwnersMeans(
            means=estimates.means_with_fakes, mean_errors=estimates.errors_with_fakes
        )

    return planting.attribute(PrivKv, "without_fakes", other)


def owners_made_up() -> AbstractContextManager[None]:
    """Plant shares of owners where nobody was asked whether a key is owned."""
    honest = PrivKv.key_signal

    def other(self: PrivKv) -> float:
        return float(honest.fget(self)) or 1e-3  # type: ignore[attr-defined]  # a property's

    return planting.attribute(PrivKv, "key_signal", property(other))


def bits_of_neighbours() -> AbstractContextManager[None]:
    """Plant counts of bits that are moved by one place."""
    honest = Rappor.tally

    def other(self: Rappor, reports: Reports) -> Counts:
        cells = honest(self, reports)
        cells[self.spec.cohorts :] = np.roll(cells[self.spec.cohorts :], 1)
        return cells

    return planting.attribute(Rappor, "tally", other)


VALUES: Final = (
    Fault(
        name="biased-sign",
        says="one sign of a number in fifty is up, whatever was drawn",
        scenario="kinds",
        check="duchi: answers as their law says",
        plant=biased_sign,
    ),
    Fault(
        name="noisy-sign",
        says="signs of numbers have more noise than their task states",
        scenario="kinds",
        check="duchi: nearly as much noise as is claimed, and not more",
        plant=noisy_sign,
    ),
    Fault(
        name="narrow-band",
        says="the band around a number is a place narrower than its task states",
        scenario="kinds",
        check="piecewise: no pair of values is told apart by more than its claim",
        plant=narrow_band,
    ),
    Fault(
        name="heavy-band",
        says="places around a number have twice the weight that their task states",
        scenario="kinds",
        check="hybrid: no pair of values is told apart by more than its claim",
        plant=heavy_band,
    ),
    Fault(
        name="ties-kept",
        says="corners on neither side of a vector are as likely as if they were on its own",
        scenario="kinds",
        check="mean-est: corners as their law says",
        plant=ties_kept,
    ),
    Fault(
        name="first-coordinates",
        says="reports on several numbers are always about the first of them",
        scenario="kinds",
        check="harmony: the first answer as their law says",
        plant=first_coordinates,
    ),
    Fault(
        name="owned-keys",
        says="the key of a report is rather one that the person owns",
        scenario="kinds",
        check="priv-kv: keys and what is said of them as their law says",
        plant=owned_keys,
    ),
    Fault(
        name="truthful-fakes",
        says="nobody says that they own a key that they do not",
        scenario="kinds",
        check="priv-kv: no pair of values is told apart by more than its claim",
        plant=truthful_fakes,
    ),
    Fault(
        name="no-permanent-noise",
        says="permanent responses of texts have no noise",
        scenario="kinds",
        check="rappor of 16 bits: no pair of values is told apart by more than its claim",
        plant=no_permanent_noise,
    ),
    Fault(
        name="first-cohort",
        says="everybody says that they are of the first cohort",
        scenario="kinds",
        check="rappor of 16 bits: cohorts as their law says",
        plant=first_cohort,
    ),
    Fault(
        name="grid-rounded-down",
        says="numbers are rounded down to their grid",
        scenario="kind-estimates",
        check="piecewise: means without bias",
        plant=grid_rounded_down,
    ),
    Fault(
        name="wrong-worth",
        says="a sign of a number is taken for more than it stands for",
        scenario="kind-estimates",
        check="duchi: means follow from reports",
        plant=wrong_worth,
    ),
    Fault(
        name="too-sure-of-means",
        says="variances of means are stated as half of what they are",
        scenario="kind-estimates",
        check="harmony: standard errors as their law says",
        plant=too_sure_of_means,
    ),
    Fault(
        name="noise-of-keys-left",
        says="shares of owners keep some of the noise",
        scenario="kind-estimates",
        check="priv-kv: shares follow from reports",
        plant=noise_of_keys_left,
    ),
    Fault(
        name="fakes-left",
        says="means of owners are still pulled by fakes",
        scenario="kind-estimates",
        check="priv-kv: means of owners follow from reports",
        plant=fakes_left,
    ),
    Fault(
        name="owners-made-up",
        says="shares of owners are given where nobody was asked",
        scenario="kind-estimates",
        check="priv-kv: owners if they are asked for",
        plant=owners_made_up,
    ),
    Fault(
        name="bits-of-neighbours",
        says="counts of bits stand a place beside their own",
        scenario="kind-estimates",
        check="the table counts every bit",
        plant=bits_of_neighbours,
    ),
)
