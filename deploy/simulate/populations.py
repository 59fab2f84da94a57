"""
Simulate one collection of any kind of value, without network and without sealing.

Randomizers and estimators are those of the services; the randomness is seeded.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self, cast

import numpy as np

from analyzer.finalize import estimate_result
from common.mechanisms.base import Counts, Mixture, Vector
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.numeric.number import to_unit
from common.mechanisms.rappor.decoder import decode
from common.mechanisms.registry import mechanism_of, number_mechanism_of, priv_kv_of, rappor_of
from common.messages.result import Means
from common.protocols import Kind, protocol_named
from common.task.draft import NumberDraft
from common.task.specs import KeyValueSpec, NumberSpec, spec_as
from common.task.task import Task
from deploy.datasets.catalogue import Dataset
from deploy.datasets.sample_people import SamplePeople
from deploy.planning.value_design import predicted_mse
from deploy.simulate.baselines import (
    CentralErrors,
    central_errors_of_items,
    central_errors_of_means,
)
from deploy.simulate.collection import count, made_one_by_one, release
from deploy.simulate.errors import ByValue, Repeat, histogram_errors, mse

_QUESTION_FIELDS: Final = ("labels", "numbers", "texts", "pairs")
"""Fields of a draft that belong to the question, and not to a protocol."""
Seed = tuple[int, int, int]
"""Of a sweep, of a setting, and of a repeat."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """People with values of one kind."""

    kind: Kind
    name: str
    title: str
    n_users: int
    domain_size: int
    """Items, numbers of a vector, or keys; 1 for a number and for texts."""
    value_names: Sequence[str]
    """Of items, candidates, numbers or keys."""
    source: Dataset | SamplePeople
    """Items are drawn again for each repeat if not all take part; other people are the same."""

    @classmethod
    def of_items(cls, data: Dataset, n_users: int) -> Self:
        """Return n_users people of a histogram."""
        return cls(
            kind="categorical",
            name=data.name,
            title=data.title,
            n_users=n_users,
            domain_size=data.domain_size,
            value_names=data.labels or tuple(f"item {item}" for item in range(data.domain_size)),
            source=data,
        )

    @classmethod
    def of_values(cls, people: SamplePeople, name: str = "sample") -> Self:
        """Return people with texts, numbers or pairs."""
        size = int(people.draft.get("domain_size", 1))
        names = people.candidates or people.draft.get("labels", ())
        return cls(
            kind=people.kind,
            name=name,
            title=people.title,
            n_users=len(people.values),
            domain_size=size,
            value_names=names or tuple(f"number {place}" for place in range(size)),
            source=people,
        )

    def draft_fields(self, protocol: str) -> dict[str, Any]:
        """Return the labels of a protocol that hashes them; of other kinds labels and range."""
        if isinstance(self.source, SamplePeople):
            draft = self.source.draft
            return {name: draft[name] for name in _QUESTION_FIELDS if name in draft}
        labelled = protocol_named(protocol).domain == "labelled"
        return {"labels": tuple(self.value_names)} if labelled else {}

    def repeat(self, task: Task, seed: Seed, *, one_by_one: bool) -> Repeat:
        """
        Collect and estimate once, as the services do, and compare with the truth.

        Args:
            task: Under which everybody reports once.
            seed: Of the randomness; people are the same for every setting of a sweep.
            one_by_one: Of items, make each message, however many.
        """
        if isinstance(self.source, SamplePeople):
            return _REPEATS[self.kind](task, self.source, np.random.default_rng(seed))
        users = self.source.sample_counts(self.n_users, np.random.default_rng((seed[0], seed[2])))
        return _repeat_items(task, users, seed, one_by_one=one_by_one)

    def central_errors(self, epsilon: float, delta: float, seed: int) -> CentralErrors:
        """
        Return the errors of a trusted collector; of items for the first repeat's people.

        Texts are a histogram; numbers are means over the range; owners' shares are means of 0 or 1,
        for every key.
        """
        if not isinstance(self.source, SamplePeople):
            users = self.source.sample_counts(self.n_users, np.random.default_rng((seed, 0)))
            return central_errors_of_items(users, epsilon, delta)
        if self.kind == "string":
            both = central_errors_of_items(np.array([self.n_users, 0]), epsilon, delta)
            return {name: both[name] for name in ("laplace_mse", "gaussian_mse")}
        half = 0.5
        if self.kind != "key-value":
            numbers = self.source.draft.get("numbers") or NumberDraft()
            half = (numbers.high - numbers.low) / 2
        return central_errors_of_means(self.n_users, self.domain_size, half, epsilon, delta)


_mechanism: Final = lru_cache(maxsize=1)(mechanism_of)


def _repeat_items(task: Task, users: Counts, seed: Seed, *, one_by_one: bool) -> Repeat:
    mechanism, n_users, rng = _mechanism(task), int(users.sum()), np.random.default_rng(seed)
    started = time.perf_counter()
    one_by_one = one_by_one or made_one_by_one(task, n_users)
    counted = count(task, mechanism, users, rng, one_by_one=one_by_one)
    histogram, mixture = release(task, mechanism, counted, n_users)
    seconds = time.perf_counter() - started
    truth = users / n_users
    return Repeat(
        seconds=seconds,
        errors=histogram_errors(histogram, truth),
        mse_theory=float(mechanism.variance(truth, mixture).mean()),
        one_by_one=one_by_one,
        by_value=ByValue(truth, histogram.frequencies, histogram.standard_errors),
    )


def _repeat_texts(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    """Draw the counts of filters. Theory is that of a rare text, as planned: a floor."""
    started = time.perf_counter()
    texts, counts = np.unique(np.array(people.values, dtype=np.str_), return_counts=True)
    rappor = rappor_of(task)
    cells = rappor.sample_cells(counts.astype(np.int64), texts.tolist(), rng)
    found = decode(rappor, cells, people.candidates)
    return Repeat(
        seconds=time.perf_counter() - started,
        errors={"mse": mse(found.shares, people.truth)},
        mse_theory=predicted_mse(task, len(people.values)),
        one_by_one=False,
        by_value=ByValue(people.truth, found.shares, found.share_errors),
    )


def _repeat_numbers(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    started = time.perf_counter()
    spec, numbers = spec_as(task.mechanism, NumberSpec), number_mechanism_of(task)
    table = np.array(people.values, dtype=np.float64).reshape(len(people.values), -1)
    unit = to_unit(table, spec.low, spec.high)
    cells = numbers.tally(numbers.randomize(unit, rng))
    found = cast("Means", estimate_result(task, numbers, cells, Mixture(n_real=len(table))))
    return Repeat(
        seconds=time.perf_counter() - started,
        errors={
            "mse": mse(found.means, people.truth),
            "mse_shrunk": mse(found.shrunk, people.truth),
        },
        mse_theory=float(((spec.high - spec.low) / 2) ** 2 * numbers.variance(unit).mean()),
        by_value=ByValue(people.truth, found.means, found.standard_errors),
    )


def _repeat_pairs(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    """Estimate the shares of owners."""
    started = time.perf_counter()
    spec, priv_kv = spec_as(task.mechanism, KeyValueSpec), priv_kv_of(task)
    owned = [sorted(cast("Mapping[int, float]", value).items()) for value in people.values]
    offsets = np.cumsum([0, *map(len, owned)])
    keys, values = np.array([pair for each in owned for pair in each]).reshape(-1, 2).T
    pairs = Pairs(
        offsets=offsets.astype(np.int64),
        keys=keys.astype(np.int64),
        values=to_unit(values, spec.low, spec.high),
    )
    found = priv_kv.estimate(priv_kv.tally(priv_kv.randomize(pairs, rng)))
    seconds = time.perf_counter() - started
    means = to_unit(cast("Vector", people.true_means), spec.low, spec.high)
    expected = priv_kv.expected(people.truth, means, len(owned))
    return Repeat(
        seconds=seconds,
        errors={"mse": mse(found.frequencies, people.truth)},
        mse_theory=float((expected.frequency_errors**2).mean()),
        by_value=ByValue(people.truth, found.frequencies, found.frequency_errors),
    )


_REPEATS: Final[Mapping[Kind, Callable[[Task, SamplePeople, np.random.Generator], Repeat]]] = {
    "string": _repeat_texts,
    "mean": _repeat_numbers,
    "vector": _repeat_numbers,
    "key-value": _repeat_pairs,
}
