"""Faults where a first look does not go: one report alone, middle values, some bits, odd laws."""

import secrets
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.accounting import guarantees as coalitions
from common.accounting.anonymity_set import Crowd, each_item_release
from common.accounting.composition import composed_epsilon
from common.accounting.count_distributions import Binomial
from common.accounting.guarantees import Terms
from common.crypto.tokens import OperatorToken
from common.mechanisms.base import Counts, Reports
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.randomized_response import Grr
from common.mechanisms.support import SupportCounting
from common.mechanisms.unary import UnaryEncoding
from common.mechanisms.weights import ResponseWeights
from common.messages.estimate import interval_reach
from common.task.dummy_spec import DummySpec
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.permutation import permute

_TWENTIETH: Final = 20


def truth_alone() -> AbstractContextManager[None]:
    """Plant a truth that is told 5 % oftener where a report is made alone."""
    honest = ResponseWeights.respond

    def other(
        self: ResponseWeights, truth: NDArray[np.int64], answers: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        more = replace(self, true=self.true + self.true // _TWENTIETH)
        return honest(more if len(truth) == 1 and self.other else self, truth, answers, rng)

    return planting.attribute(ResponseWeights, "respond", other)


def one_value_untouched() -> AbstractContextManager[None]:
    """Plant a value of which a report that is made alone is the truth."""
    honest = LocalHashing.randomize

    def other(self: LocalHashing, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        reports = honest(self, values, rng)
        if len(values) == 1 and values[0] == 7:  # noqa: PLR2004  # any value
            reports["bucket"] = self.hashed(reports, 7)
        return reports

    return planting.attribute(LocalHashing, "randomize", other)


def next_item_for_middle_values() -> AbstractContextManager[None]:
    """Plant lies that name the next item, but of the first and the last value."""
    honest = Grr.randomize

    def other(self: Grr, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        reports = honest(self, values, rng)
        middle = (values > 0) & (values < self.domain_size - 1) & (reports["item"] != values)
        reports["item"][middle] = values[middle] + 1
        return reports

    return planting.attribute(Grr, "randomize", other)


def shared_bits() -> AbstractContextManager[None]:
    """Plant noise of which the third and the fourth bit are the same."""
    honest = UnaryEncoding._noise  # what is planted

    def other(self: UnaryEncoding, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        noise = honest(self, count, rng)
        if self.domain_size > 3:  # noqa: PLR2004  # there is a fourth
            noise[:, 3] = noise[:, 2]
        return noise

    return planting.attribute(UnaryEncoding, "_noise", other)


def two_items_exchanged() -> AbstractContextManager[None]:
    """Plant an analyzer that exchanges the second item and the third."""
    honest = Grr.tally

    def other(self: Grr, reports: Reports) -> Counts:
        cells = honest(self, reports)
        if self.domain_size > 2:  # noqa: PLR2004  # there is a third
            cells[[1, 2]] = cells[[2, 1]]
        return cells

    return planting.attribute(Grr, "tally", other)


def shares_exchanged() -> AbstractContextManager[None]:
    """Plant estimates of which those of the second item and the third are exchanged."""
    honest = SupportCounting.debias

    def other(self: SupportCounting, cells: Counts, mixture: Any) -> Any:
        shares = honest(self, cells, mixture)
        if len(shares) > 3:  # noqa: PLR2004  # neither is the first or the last
            shares[[1, 2]] = shares[[2, 1]]
        return shares

    return planting.attribute(SupportCounting, "debias", other)


def small_variances() -> AbstractContextManager[None]:
    """Plant variances of six tenths."""
    honest = SupportCounting.variance

    def other(self: SupportCounting, shares: Any, mixture: Any) -> Any:
        return 0.6 * honest(self, shares, mixture)

    return planting.attribute(SupportCounting, "variance", other)


def short_intervals() -> AbstractContextManager[None]:
    """Plant intervals that are sure on one side alone."""

    def other(confidence: float) -> float:
        return interval_reach(2 * confidence - 1)

    return planting.function(interval_reach, other)


def two_rounds_of_three() -> AbstractContextManager[None]:
    """Plant a composition that leaves out all different releases but two."""

    def other(releases: Any, delta: float) -> float:
        return composed_epsilon(list(dict.fromkeys(releases))[:2], delta)

    return planting.function(composed_epsilon, other)


def refused_dummies_kept() -> AbstractContextManager[None]:
    """Plant crowds whose drawn dummies are counted though some were refused."""
    honest = Terms.crowd_of

    def other(self: Terms, n_users: int, honest_: int, adding: int, n_refused: int) -> Crowd:
        crowd = honest(self, n_users, honest_, adding, n_refused)
        if not self.dummies.uniform:
            whole = Binomial(max(1, adding), self.dummies.extra_chance)
            return replace(crowd, random_dummies=whole)
        return replace(crowd, known_dummies=0)

    return planting.attribute(Terms, "crowd_of", other)


def no_most_of_each_item() -> AbstractContextManager[None]:
    """Plant an accountant that forgets that dummies of each item are no more than so many."""

    def other(spec: DummySpec, users: int) -> Any:
        return each_item_release(replace(spec, most=spec.trials), users)

    return planting.function(each_item_release, other)


def one_round_of_ones_own() -> AbstractContextManager[None]:
    """Plant a promise against shuffler and analyzer that forgets how many rounds there are."""
    honest = coalitions.local_guarantee

    def other(coalition: Any, terms: Terms) -> Any:
        return honest(coalition, replace(terms, rounds=1))

    return planting.function(honest, other)


def sorted_by_production() -> AbstractContextManager[None]:
    """Plant an order that is nearly that of arrival where production's generator draws it."""

    def other(reports: Any, rng: np.random.Generator) -> Any:
        if type(rng.bit_generator).__name__.startswith("_Secure"):
            return reports[np.argsort(rng.integers(0, 4, size=len(reports)), kind="stable")]
        return permute(reports, rng)

    return planting.function(permute, other)


def short_tokens() -> AbstractContextManager[None]:
    """Plant operators' tokens of sixteen bits, sixteen times over."""

    def other() -> bytes:
        return secrets.token_hex(2).encode() * 16

    return planting.attribute(OperatorToken, "generate", staticmethod(other))


def _fault(name: str, says: str, scenario: str, check: str, plant: Any) -> Fault:
    return Fault(name=name, says=says, scenario=scenario, check=check, plant=plant)


CORNERS: Final = (
    _fault(
        "truth-alone",
        "a report that is made alone is the truth 5 % oftener",
        "mechanisms",
        "a report made alone is as one of many",
        truth_alone,
    ),
    _fault(
        "one-value-untouched",
        "devices with one of the values send the truth",
        "randomizer",
        "a report made alone is as one of many",
        one_value_untouched,
    ),
    _fault(
        "middle-values-next",
        "lies of all values but the first and the last name the next item",
        "mechanisms",
        "a report of any value: places",
        next_item_for_middle_values,
    ),
    _fault(
        "shared-bits",
        "two bits of an encoding by bits share their noise",
        "mechanisms",
        "any two bits",
        shared_bits,
    ),
    _fault(
        "items-exchanged",
        "the analyzer counts two items for each other",
        "mechanisms",
        "reports are counted by what they support",
        two_items_exchanged,
    ),
    _fault(
        "shares-exchanged",
        "the analyzer states two items' shares for each other",
        "estimates",
        "every item by its own share",
        shares_exchanged,
    ),
    _fault(
        "small-variances",
        "standard errors are a quarter too small",
        "estimates",
        "are those of their law",
        small_variances,
    ),
    _fault(
        "short-intervals",
        "intervals of 95 % hold the truth 90 times in a hundred",
        "estimates",
        "intervals reach as far as the normal law says",
        short_intervals,
    ),
    _fault(
        "two-rounds-of-three",
        "of several different releases two are composed",
        "accountant",
        "three different rounds cost no less than they do",
        two_rounds_of_three,
    ),
    _fault(
        "refused-dummies-kept",
        "drawn dummies are counted though some were refused",
        "accountant",
        "refused ones may be drawn ones",
        refused_dummies_kept,
    ),
    _fault(
        "each-item-without-most",
        "the accountant forgets that dummies of each item are limited",
        "accountant",
        "dummies of each item, ",
        no_most_of_each_item,
    ),
    _fault(
        "own-rounds-forgotten",
        "several rounds cost no more against shuffler and analyzer than one",
        "rounds",
        "learns from 2 rounds twice",
        one_round_of_ones_own,
    ),
    _fault(
        "short-tokens",
        "an operator's token repeats sixteen random bits",
        "secrets",
        "every byte is drawn of a new operator's token",
        short_tokens,
    ),
    _fault(
        "production-keeps-order",
        "with production's generator reports nearly keep their order",
        "orders",
        "by production's generator",
        sorted_by_production,
    ),
)
