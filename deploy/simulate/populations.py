"""
People whose answers are simulated, without network and without sealing: one class for items, one
for all other kinds of values.

Randomizers and estimators are those of the services. Texts are not reported one by one: the
mechanism draws the counts of their filters, which have the same distribution. Seeded throughout.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np

from analyzer.estimation.dispatch import estimate_result
from common.errors import TaskError
from common.mechanisms.base import Counts, Mechanism, Mixture, Vector
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.numeric.number import to_unit
from common.mechanisms.registry import (
    mechanism_of,
    number_mechanism_of,
    priv_kv_of,
    randomizer_of,
    rappor_of,
)
from common.messages.estimate import BitTable, Estimate, KeyValues, Means
from common.protocols import Kind, protocol_named
from common.task.draft import NumberDraft
from common.task.specs import KeyValueSpec, NumberSpec, spec_as
from common.task.task import Task
from deploy.datasets.catalogue import Dataset
from deploy.datasets.sample_people import SamplePeople
from deploy.planning.value_design import predicted_mse
from deploy.results.decoded_texts import decode_candidates
from deploy.simulate.baselines import (
    CentralErrors,
    central_errors_of_items,
    central_errors_of_means,
)
from deploy.simulate.collection import count, made_one_by_one, release
from deploy.simulate.errors import ByValue, Repeat, histogram_errors, mse

_QUESTION_FIELDS: Final = ("labels", "numbers", "texts", "pairs")
"""Fields of a draft that belong to the question, and not to a protocol."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ItemPopulation:
    """People of a histogram; each repeat draws again if not all take part."""

    dataset: Dataset
    n_users: int
    kind: Kind = "categorical"

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.dataset.name

    @property
    def title(self) -> str:
        """Title of the data set."""
        return self.dataset.title

    @property
    def domain_size(self) -> int:
        """Items."""
        return self.dataset.domain_size

    @property
    def value_names(self) -> Sequence[str]:
        """The items' labels; numbers where they have none."""
        return self.dataset.labels or tuple(f"item {item}" for item in range(self.domain_size))

    def draft_fields(self, protocol: str) -> dict[str, Any]:
        """Return the items' names for a protocol that hashes them."""
        labelled = protocol_named(protocol).domain == "labelled"
        return {"labels": tuple(self.value_names)} if labelled else {}

    def repeat(self, task: Task, seed: tuple[int, int, int], *, one_by_one: bool) -> Repeat:
        """Collect once, each message made if asked for or if few, and compare with the truth."""
        # The same people for every protocol, so that nothing else differs in a comparison.
        users = self._people(seed[0], seed[2])
        mechanism, rng = _mechanism(task.to_bytes()), np.random.default_rng(seed)
        started = time.perf_counter()
        one_by_one = one_by_one or made_one_by_one(task, self.n_users)
        counted = count(task, mechanism, users, rng, one_by_one=one_by_one)
        histogram, mixture = release(task, mechanism, counted, self.n_users)
        seconds = time.perf_counter() - started
        truth = users / self.n_users
        return Repeat(
            errors=histogram_errors(histogram, truth),
            mse_theory=float(mechanism.variance(truth, mixture).mean()),
            seconds=seconds,
            one_by_one=one_by_one,
            by_value=ByValue(truth, histogram.frequencies, histogram.standard_errors),
        )

    def central_errors(self, epsilon: float, delta: float, seed: int) -> CentralErrors:
        """Return the errors of a trusted collector, for the first repeat's people."""
        return central_errors_of_items(self._people(seed, 0), epsilon, delta)

    def _people(self, seed: int, number: int) -> Counts:
        return self.dataset.sample_counts(self.n_users, np.random.default_rng((seed, number)))


@lru_cache(maxsize=1)
def _mechanism(task_bytes: bytes) -> Mechanism:
    return mechanism_of(Task.from_bytes(task_bytes))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValuePopulation:
    """People with texts, numbers or pairs; the same in every repeat."""

    people: SamplePeople
    name: str = "sample"

    @property
    def kind(self) -> Kind:
        """Kind of their values."""
        return self.people.kind

    @property
    def title(self) -> str:
        """What a value is, in a sentence."""
        return self.people.title

    @property
    def n_users(self) -> int:
        """All of them."""
        return len(self.people.values)

    @property
    def domain_size(self) -> int:
        """Numbers of a vector, or keys; 1 for a number and for texts."""
        return int(self.people.draft.get("domain_size", 1))

    @property
    def value_names(self) -> Sequence[str]:
        """Candidates, or the labels of numbers or keys."""
        names = self.people.candidates or self.people.draft.get("labels", ())
        return names or tuple(f"number {place}" for place in range(self.domain_size))

    def draft_fields(self, protocol: str) -> dict[str, Any]:
        """Return the labels and the range, whatever the protocol."""
        del protocol
        draft = self.people.draft
        return {name: draft[name] for name in _QUESTION_FIELDS if name in draft}

    def repeat(self, task: Task, seed: tuple[int, int, int], *, one_by_one: bool) -> Repeat:
        """Let everybody report once, estimate as the analyzer does, and compare with the truth."""
        del one_by_one  # there is one way for each kind
        started = time.perf_counter()
        estimate = _collect(task, self.people, np.random.default_rng(seed))
        found, shrunk = _figures(task, estimate, self.people)
        seconds = time.perf_counter() - started
        errors = {"mse": mse(found.estimates, found.truth)}
        if shrunk is not None:
            errors["mse_shrunk"] = mse(shrunk, found.truth)
        return Repeat(
            errors=errors,
            mse_theory=_expected_error(task, self.people),
            seconds=seconds,
            one_by_one=task.kind != "string",
            by_value=found,
        )

    def central_errors(self, epsilon: float, delta: float, seed: int) -> CentralErrors:
        """
        Return the errors of a trusted collector.

        Texts are a histogram; numbers are means over the range; owners' shares are means of 0 or 1,
        for every key.
        """
        del seed
        if self.kind == "string":
            both = central_errors_of_items(np.array([self.n_users, 0]), epsilon, delta)
            return {name: both[name] for name in ("laplace_mse", "gaussian_mse")}
        half = 0.5
        if self.kind != "key-value":
            numbers = self.people.draft.get("numbers") or NumberDraft()
            half = (numbers.high - numbers.low) / 2
        return central_errors_of_means(self.n_users, self.domain_size, half, epsilon, delta)


Population = ItemPopulation | ValuePopulation
"""People with values of one kind, of whom every repeat simulates one collection."""


def _collect(task: Task, people: SamplePeople, rng: np.random.Generator) -> Estimate:
    """Let everybody report once, and estimate as the analyzer does."""
    if task.kind == "string":
        texts, counts = np.unique(np.array(people.values, dtype=np.str_), return_counts=True)
        cells = rappor_of(task).sample_cells(counts.astype(np.int64), texts.tolist(), rng)
    elif task.kind == "key-value":
        pairs = priv_kv_of(task)
        cells = pairs.tally(pairs.randomize(_pairs(task, people), rng))
    else:
        numbers = number_mechanism_of(task)
        cells = numbers.tally(numbers.randomize(_unit(task, people), rng))
    return estimate_result(task, randomizer_of(task), cells, Mixture(n_real=len(people.values)))


def _unit(task: Task, people: SamplePeople) -> Vector:
    spec = spec_as(task.mechanism, NumberSpec)
    table = np.array(people.values, dtype=np.float64).reshape(len(people.values), -1)
    return to_unit(table, spec.low, spec.high)


def _pairs(task: Task, people: SamplePeople) -> Pairs:
    spec = spec_as(task.mechanism, KeyValueSpec)
    owned = [sorted(cast("Mapping[int, float]", value).items()) for value in people.values]
    offsets = np.cumsum([0, *map(len, owned)])
    keys, values = np.array([pair for each in owned for pair in each]).reshape(-1, 2).T
    return Pairs(
        offsets=offsets.astype(np.int64),
        keys=keys.astype(np.int64),
        values=to_unit(values, spec.low, spec.high),
    )


def _figures(task: Task, estimate: Estimate, people: SamplePeople) -> tuple[ByValue, Vector | None]:
    """Return the unbiased figures by value, and the shrunk ones of means."""
    if isinstance(estimate, Means):
        return ByValue(people.truth, estimate.means, estimate.standard_errors), estimate.shrunk
    if isinstance(estimate, KeyValues):
        owners = estimate.owners
        if owners is None:
            raise TaskError("key_share is 0; owners' shares are compared, so it must be above 0")
        return ByValue(people.truth, owners.frequencies, owners.frequency_errors), None
    found = decode_candidates(task, cast("BitTable", estimate), people.candidates)
    return ByValue(people.truth, found.shares, found.standard_errors / found.n_reports), None


def _expected_error(task: Task, people: SamplePeople) -> float:
    """
    Return the mean squared error that theory expects for these very people.

    Exact for numbers and for owners' shares; for texts that of a rare one, as planned: a floor.
    """
    if task.kind == "string":
        return predicted_mse(task, len(people.values))
    spec = task.mechanism
    if isinstance(spec, NumberSpec):
        half = (spec.high - spec.low) / 2
        return float(half**2 * number_mechanism_of(task).variance(_unit(task, people)).mean())
    means = np.zeros(task.domain_size) if people.true_means is None else people.true_means
    pairs = spec_as(spec, KeyValueSpec)
    unit = to_unit(means, pairs.low, pairs.high)
    expected = priv_kv_of(task).expected(people.truth, unit, len(people.values))
    return float((expected.frequency_errors**2).mean())
