"""Simulate one collection of any kind of value, by the services' own code, without encryption."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self, cast

import numpy as np

from analyzer.kinds import VALUE_KINDS
from common.mechanisms.base import Counts, Mixture, Vector
from common.mechanisms.covariance import ShareCovariance
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.key_value.privkv import PrivKv
from common.mechanisms.numeric.number import to_unit
from common.mechanisms.registry import (
    mechanism_of,
    number_mechanism_of,
    prefix_hashing_of,
    rappor_of,
)
from common.messages.result import FoundValues, Means
from common.protocols import Kind, protocol_named
from common.task.domain_spec import EdgesSpec
from common.task.draft import NumberDraft
from common.task.specs import KeyValueSpec, NumberSpec, spec_as
from common.task.task import Task
from deploy.datasets.catalogue import Dataset
from deploy.datasets.sample_people import SamplePeople, numbers_of
from deploy.results.decoder import decode
from deploy.results.estimate_table import mse_of
from lab.planning.value_design import predicted_mse, prefix_variances
from lab.simulate import baselines
from lab.simulate.accuracy import (
    LEAST_REPEATS,
    ByValue,
    Repeat,
    histogram_errors,
    prefix_errors,
)
from lab.simulate.collection import collect, estimate_histogram, few_enough_reports
from user_agent.contribution import encoder_for

_QUESTION_FIELDS: Final = ("labels", "numbers", "texts", "open", "pairs")
"""Draft fields that describe the values and not the protocol."""
_MOST_REPEATS: Final = 30
_CHEAP: Final = 200_000
"""Users, or items, over all repeats of a setting that take about a second."""
Seed = tuple[int, int, int]
"""The sweep's seed, the setting's index and the repeat's index."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """The users of a simulation, with values of one kind."""

    kind: Kind
    name: str
    title: str
    n_users: int
    domain_size: int
    """Number of items, of a vector's numbers, or of keys; 1 for a number and for texts."""
    value_names: Sequence[str]
    """Names of items, candidates, numbers or keys."""
    source: Dataset | SamplePeople
    """A histogram, sampled for each repeat, or users with fixed values."""
    edges: EdgesSpec | None = None
    """Edges of the histogram's buckets, if they are ordered."""
    remarks: Sequence[str] = ()
    """Sentences on values of the data set that are missing, or may be."""

    @classmethod
    def of_items(cls, data: Dataset, n_users: int) -> Self:
        """Return a population of n_users, sampled without replacement from a histogram."""
        data.check_items()
        return cls(
            kind="categorical",
            name=data.name,
            title=data.title,
            n_users=n_users,
            domain_size=data.domain_size,
            value_names=data.labels or tuple(f"item {item}" for item in range(data.domain_size)),
            source=data,
            remarks=data.remarks,
        )

    @classmethod
    def of_numbers(
        cls,
        data: Dataset | None,
        n_users: int | None,
        buckets: int,
        span: tuple[float, float] | None = None,
    ) -> Self:
        """Return a population of n_users, by default all, whose numbers are put into buckets."""
        numbers, data, edges = numbers_of(data, buckets, span)
        counts, _ = np.histogram(numbers, edges.edges, weights=data.counts)
        data = dataclasses.replace(data, labels=(), counts=counts.astype(np.int64))
        people = cls.of_items(data, data.n_users if n_users is None else n_users)
        ends = f"from {edges.low:,.15g} to {edges.high:,.15g} {edges.unit}".rstrip()
        title = f"{data.title}, {buckets:,} {edges.spacing} buckets {ends}"
        return dataclasses.replace(people, title=title, kind="ordered", edges=edges)

    @classmethod
    def of_values(cls, people: SamplePeople, name: str = "sample") -> Self:
        """Return a population of users with texts, numbers or pairs."""
        size = int(people.draft.get("domain_size", 1))
        names = people.candidates or people.draft.get("labels", ())
        return cls(
            kind=people.kind,
            name=name,
            title=people.title,
            n_users=len(people.values),
            domain_size=size,
            value_names=names or tuple(f"number {index}" for index in range(size)),
            source=people,
        )

    @property
    def usual_repeats(self) -> int:
        """Number of repeats that take seconds: LEAST_REPEATS, or more of small data."""
        size = self.n_users if isinstance(self.source, SamplePeople) else self.domain_size
        return max(LEAST_REPEATS, min(_MOST_REPEATS, _CHEAP // size))

    def draft_fields(self, protocol: str) -> dict[str, Any]:
        """Return draft fields that describe the values; for items, labels if needed."""
        if isinstance(self.source, SamplePeople):
            draft = self.source.draft
            return {name: draft[name] for name in _QUESTION_FIELDS if name in draft}
        if self.edges is not None:
            return {"edges": self.edges}
        labelled = protocol_named(protocol).domain == "labelled"
        return {"labels": tuple(self.value_names)} if labelled else {}

    def repeat(self, task: Task, seed: Seed, *, one_by_one: bool) -> Repeat:
        """Collect every answer once, estimate as the services do, and compare with the truth."""
        if isinstance(self.source, SamplePeople):
            return _REPEATS[self.kind](task, self.source, np.random.default_rng(seed))
        users = self.source.sample_counts(self.n_users, np.random.default_rng((seed[0], seed[2])))
        return _repeat_items(task, users, seed, one_by_one=one_by_one)

    def central_errors(self, epsilon: float, delta: float, seed: int) -> baselines.CentralErrors:
        """
        Return the errors of central mechanisms; for items, on the first repeat's users.

        Texts are released as a histogram, the owners of each key as means of 0 or 1. There are none
        for ordered buckets and open dictionaries.
        """
        if self.kind in {"ordered", "open"}:
            return {}
        if not isinstance(self.source, SamplePeople):
            users = self.source.sample_counts(self.n_users, np.random.default_rng((seed, 0)))
            return baselines.central_errors_of_items(users, epsilon, delta)
        if self.kind == "string":
            errors = baselines.central_errors_of_items(np.array([self.n_users, 0]), epsilon, delta)
            return {name: errors[name] for name in ("laplace_mse", "gaussian_mse")}
        half = 0.5
        if self.kind != "key-value":
            numbers = self.source.draft.get("numbers") or NumberDraft()
            half = (numbers.high - numbers.low) / 2
        return baselines.central_errors_of_means(
            self.n_users, self.domain_size, half, epsilon, delta
        )


_mechanism: Final = lru_cache(maxsize=1)(mechanism_of)


def _repeat_items(task: Task, users: Counts, seed: Seed, *, one_by_one: bool) -> Repeat:
    """Simulate items; the errors of ordered buckets are those of shares below an edge."""
    mechanism, n_users, rng = _mechanism(task), int(users.sum()), np.random.default_rng(seed)
    started = time.perf_counter()
    one_by_one = one_by_one or few_enough_reports(task, n_users)
    counts = collect(task, mechanism, users, rng, one_by_one=one_by_one)
    histogram, mixture = estimate_histogram(task, mechanism, counts, n_users)
    seconds = time.perf_counter() - started
    truth = users / n_users
    if task.edges is None:
        errors = histogram_errors(histogram, truth)
        theory = ShareCovariance.of_mechanism(mechanism, truth, mixture).of_shares()
    else:
        errors = prefix_errors(histogram.frequencies, histogram.refined, truth)
        theory = prefix_variances(task, n_users)
    return Repeat(
        seconds=seconds,
        errors=errors,
        mse_theory=float(theory.mean()),
        one_by_one=one_by_one,
        by_value=ByValue(truth, histogram.frequencies, histogram.standard_errors),
    )


def _repeat_texts(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    """Simulate texts by drawing bit counts; theory is the planner's bound for a rare text."""
    started = time.perf_counter()
    texts, counts = zip(*sorted(Counter(people.values).items()), strict=True)
    rappor = rappor_of(task)
    cells = rappor.sample_cells(np.array(counts, dtype=np.int64), texts, rng)
    decoding = decode(rappor, cells, people.candidates)
    return Repeat(
        seconds=time.perf_counter() - started,
        errors={"mse": mse_of(decoding.shares, people.truth)},
        mse_theory=predicted_mse(task, len(people.values)),
        one_by_one=False,
        by_value=ByValue(people.truth, decoding.shares, decoding.share_errors),
    )


def _repeat_open(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    """Simulate every report; the mean squared error is that of the values found."""
    started = time.perf_counter()
    names, counts = zip(*sorted(Counter(people.values).items()), strict=True)
    mechanism, encode = prefix_hashing_of(task), encoder_for(task, None)
    rows = np.concatenate([encode(name, rng) for name in names])
    reports = mechanism.randomize(np.repeat(rows, counts, axis=0), rng)
    mixture = Mixture(n_real=len(reports))
    found = cast("FoundValues", VALUE_KINDS[task.kind].estimate(task, mechanism, reports, mixture))
    shares = Counter[bytes]()  # by code, which several texts may have
    for code, count in zip(map(bytes, rows.astype(np.uint8)), counts, strict=True):
        shares[code] += count / len(reports)
    truth = np.array([shares.get(value, 0.0) for value in found.values])
    sure = {value for value, share in shares.items() if share >= found.sure_share}
    n_found = max(1, len(found.values))
    return Repeat(
        seconds=time.perf_counter() - started,
        errors={
            "mse": float(((found.shares - truth) ** 2).sum() / n_found),
            "sure_share": found.sure_share,
            "found": len(sure & set(found.values)) / max(1, len(sure)),
            "false": float((truth == 0).sum()),
        },
        mse_theory=float((found.standard_errors**2).sum() / n_found),
    )


def _repeat_numbers(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    started = time.perf_counter()
    spec, numbers = spec_as(task.mechanism, NumberSpec), number_mechanism_of(task)
    table = np.array(people.values, dtype=np.float64).reshape(len(people.values), -1)
    unit = to_unit(table, spec.low, spec.high)
    cells = numbers.tally(numbers.randomize(unit, rng))
    result = cast(
        "Means", VALUE_KINDS[task.kind].estimate(task, numbers, cells, Mixture(n_real=len(table)))
    )
    estimates = {"mse": result.means, "mse_shrunk": result.shrunk}
    return Repeat(
        seconds=time.perf_counter() - started,
        errors={name: mse_of(estimate, people.truth) for name, estimate in estimates.items()},
        mse_theory=float(((spec.high - spec.low) / 2) ** 2 * numbers.variance(unit).mean()),
        by_value=ByValue(people.truth, result.means, result.standard_errors),
    )


def _repeat_pairs(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    started = time.perf_counter()
    spec, priv_kv = spec_as(task.mechanism, KeyValueSpec), PrivKv.of(task)
    owned = [sorted(cast("Mapping[int, float]", value).items()) for value in people.values]
    offsets = np.cumsum([0, *map(len, owned)])
    keys, values = np.array([pair for pairs in owned for pair in pairs]).reshape(-1, 2).T
    unit = to_unit(values, spec.low, spec.high)
    pairs = Pairs(offsets=offsets.astype(np.int64), keys=keys.astype(np.int64), values=unit)
    result = priv_kv.estimate(priv_kv.tally(priv_kv.randomize(pairs, rng)))
    seconds = time.perf_counter() - started
    means = to_unit(cast("Vector", people.true_means), spec.low, spec.high)
    expected = priv_kv.expected(people.truth, means, len(owned))
    return Repeat(
        seconds=seconds,
        errors={"mse": mse_of(result.frequencies, people.truth)},
        mse_theory=float((expected.frequency_errors**2).mean()),
        by_value=ByValue(people.truth, result.frequencies, result.frequency_errors),
    )


_REPEATS: Final[Mapping[Kind, Callable[[Task, SamplePeople, np.random.Generator], Repeat]]] = {
    "string": _repeat_texts,
    "open": _repeat_open,
    "mean": _repeat_numbers,
    "vector": _repeat_numbers,
    "key-value": _repeat_pairs,
}
