"""Simulate one collection of any kind of value, by the services' own code, without encryption."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, product
from typing import Any, Final, NamedTuple, Self, cast

import numpy as np

from shuffledp.analyzer.finalize import estimate_result, mixture_of
from shuffledp.common.mechanisms import registry
from shuffledp.common.mechanisms.base import Counts, Mixture, Vector
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.key_value.pairs import Pairs
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.numeric.number import to_unit
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages.result import FoundValues, Means, ShareTables
from shuffledp.common.protocols import Kind, protocol_named
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import KeyValueSpec, RangedSpec
from shuffledp.common.task.task import Task
from shuffledp.deploy.datasets import sample_people as samples
from shuffledp.deploy.datasets.names import IPUMS_1940_CITY
from shuffledp.deploy.datasets.sample_people import SamplePeople
from shuffledp.deploy.datasets.sources import Dataset
from shuffledp.deploy.results.decoder import decode
from shuffledp.deploy.results.distribution_view import bucket_names
from shuffledp.deploy.results.estimate_table import mse_of
from shuffledp.deploy.results.table_view import names_of
from shuffledp.deploy.tasks.value_parser import parse_tables
from shuffledp.lab.planning import central_mechanisms as central
from shuffledp.lab.planning.central_mechanisms import CentralErrors, gaussian_error, tables_square
from shuffledp.lab.planning.predictions import expected_pairs, predicted_mse
from shuffledp.lab.simulate import accuracy, collection
from shuffledp.lab.simulate.accuracy import ByValue, Repeat
from shuffledp.user_agent.contribution import encoder_for

_QUESTION: Final = ("labels", "numbers", "texts", "open", "pairs", "tables")
_MOST_REPEATS: Final = 30
_CHEAP: Final = 200_000
"""Users over all repeats of a setting that take about a second."""
_CELLS: Final = 10_000_000
"""Cells of hashed reports, about squared items, over all repeats: refined in some 20 seconds."""
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
    question: Mapping[str, Any]
    """Draft fields that describe the values and not the protocol."""
    remarks: Sequence[str] = ()
    """Sentences on values of the data set that are missing, or may be."""

    @classmethod
    def of_items(cls, data: Dataset, n_users: int | None) -> Self:
        """Return n_users, by default all, sampled without replacement from a histogram."""
        data.check_items()
        return cls(
            kind="categorical",
            name=data.name,
            title=data.title,
            n_users=data.n_users if n_users is None else n_users,
            domain_size=data.domain_size,
            value_names=data.labels or tuple(f"item {item}" for item in range(data.domain_size)),
            source=data,
            question={},
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
        numbers, data, edges = samples.numbers_of(data, buckets, span)
        counts, _ = np.histogram(numbers, edges.edges, weights=data.counts)
        data = dataclasses.replace(data, labels=(), counts=counts.astype(np.int64))
        people = cls.of_items(data, n_users)
        ends = f"from {edges.low:,.15g} to {edges.high:,.15g} {edges.unit}".rstrip()
        title = f"{data.title}, {buckets:,} {edges.spacing} buckets {ends}"
        changes: dict[str, Any] = {"kind": "ordered", "question": {"edges": edges}}
        return dataclasses.replace(people, title=title, value_names=bucket_names(edges), **changes)

    @classmethod
    def of_values(cls, people: SamplePeople, name: str = "sample") -> Self:
        """Return a population of users with texts, numbers or pairs."""
        size = int(people.draft.get("domain_size", 1))
        names = people.candidates or people.draft.get("labels", ())
        alone, noun = KINDS[people.kind].sizes == (1, 1), SIMULATED_KINDS[people.kind].sized[:-1]
        return cls(
            kind=people.kind,
            name=name,
            title=people.title,
            n_users=len(people.values),
            domain_size=size,
            value_names=names or ("mean",) * alone or [f"{noun} {at}" for at in range(size)],
            source=people,
            question={name: people.draft[name] for name in _QUESTION if name in people.draft},
        )

    @classmethod
    def of_tables(cls, people: SamplePeople, name: str = "sample") -> Self:
        """Return a population of users with attributes, kept as the true shares of all cells."""
        spec = Tables.specify(people.draft["tables"])
        values = [[f"{each.name} {part}" for part in names_of(each)] for each in spec.attributes]
        parts = chain.from_iterable(product(*(values[at] for at in table)) for table in spec.tables)
        return dataclasses.replace(
            cls.of_values(people, name),
            domain_size=len(values),
            value_names=[*map(GROUP_SEPARATOR.join, parts)],
            source=dataclasses.replace(people, values=[]),  # workers need the truth alone
        )

    @property
    def usual_repeats(self) -> int:
        """Number of repeats that take seconds: accuracy.LEAST_REPEATS, or more of small data."""
        fixed = isinstance(self.source, SamplePeople)
        many = _CHEAP // self.n_users if fixed else _CELLS // self.domain_size**2
        return max(accuracy.LEAST_REPEATS, min(_MOST_REPEATS, many))

    def draft_fields(self, protocol: str) -> Mapping[str, Any]:
        """Return `question`, and the labels of items if the protocol needs them."""
        labelled = self.kind == "categorical" and protocol_named(protocol).domain == "labelled"
        return {**self.question, "labels": tuple(self.value_names)} if labelled else self.question

    def sample_counts(self, *seed: int) -> Counts:
        """Draw the users by item; only of a histogram."""
        data = cast("Dataset", self.source)
        return data.sample_counts(self.n_users, np.random.default_rng(seed))

    def repeat(self, task: Task, seed: Seed, *, one_by_one: bool) -> Repeat:
        """Collect every answer once, estimate as the services do, and compare with the truth."""
        return SIMULATED_KINDS[self.kind].repeat(self, task, seed, one_by_one)


_mechanism: Final = lru_cache(maxsize=1)(registry.mechanism_of)


def _repeat_items(people: Population, task: Task, seed: Seed, one_by_one: bool) -> Repeat:  # noqa: FBT001
    """Simulate items; the errors of ordered buckets are those of shares below an edge."""
    users = people.sample_counts(seed[0], seed[2])
    mechanism, n_users, rng = _mechanism(task), int(users.sum()), np.random.default_rng(seed)
    started = time.perf_counter()
    one_by_one = one_by_one or collection.few_enough_reports(task, n_users)
    counts = collection.collect(task, mechanism, users, rng, one_by_one=one_by_one)
    histogram, mixture = collection.estimate_histogram(task, mechanism, counts, n_users)
    seconds = time.perf_counter() - started
    truth = users / n_users
    if task.edges is None:
        errors = accuracy.histogram_errors(histogram, truth)
        theory = float(ShareCovariance.of_mechanism(mechanism, truth, mixture).of_shares().mean())
    else:
        errors = accuracy.prefix_errors(histogram.frequencies, histogram.refined, truth)
        theory = predicted_mse(task, n_users)
    return Repeat(
        seconds=seconds,
        errors=errors,
        mse_theory=theory,
        one_by_one=one_by_one,
        by_value=ByValue(truth, histogram.frequencies, histogram.standard_errors),
    )


def _repeat_texts(task: Task, people: SamplePeople, rng: np.random.Generator) -> Repeat:
    """Simulate texts by drawing bit counts; theory is the planner's bound for a rare text."""
    started = time.perf_counter()
    texts, counts = zip(*sorted(Counter(people.values).items()), strict=True)
    rappor = registry.rappor_of(task)
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
    mechanism, encode = registry.prefix_hashing_of(task), encoder_for(task, None)
    rows = np.concatenate([encode(name, rng) for name in names])
    reports = mechanism.randomize(np.repeat(rows, counts, axis=0), rng)
    mixture = Mixture(n_real=len(reports))
    found = cast("FoundValues", estimate_result(task, mechanism, reports, mixture))
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
    spec, numbers = spec_as(task.mechanism, RangedSpec), registry.mean_mechanism_of(task)
    table = np.array(people.values, dtype=np.float64).reshape(len(people.values), -1)
    unit = to_unit(table, spec.low, spec.high)
    counts = collection.with_noise(task, numbers.sample_batch(unit, rng), rng)
    mixture = mixture_of(task, len(unit), counted=counts.n_reports)
    result = cast("Means", estimate_result(task, numbers, counts.cells, mixture))
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
    expected = expected_pairs(priv_kv, people.truth, means, len(owned))
    return Repeat(
        seconds=seconds,
        errors={"mse": mse_of(result.frequencies, people.truth)},
        mse_theory=float((expected.frequency_errors**2).mean()),
        by_value=ByValue(people.truth, result.frequencies, result.frequency_errors),
    )


def _repeat_tables(people: Population, task: Task, seed: Seed, _one_by_one: bool) -> Repeat:  # noqa: FBT001
    """Draw the noise of all tables' cells; users' own reports have none."""
    started, rng = time.perf_counter(), np.random.default_rng(seed)
    mechanism, n_users = Tables.of(task), people.n_users
    truth = cast("SamplePeople", people.source).truth
    exact = np.rint(truth * n_users).astype(np.int64)
    cells = exact + mechanism.sample_dummies(n_users, rng)
    if task.shuffler.most_dummies:
        cells += task.shuffler.draw_dummies(rng)
    estimate = cast("ShareTables", estimate_result(task, mechanism, cells, Mixture(n_real=n_users)))
    seconds, sizes = time.perf_counter() - started, mechanism.sizes
    raw = [each + (n_users - each.sum()) / len(each) for each in mechanism.by_view(cells)]
    margins = [mechanism.estimate(exact, n_users).attributes, estimate.attributes]
    true_margins, found_margins = (np.concatenate([t.shares for t in each]) for each in margins)
    of_cells, of_margins = mechanism.variances(n_users)
    of_raw = [view.item_variance(n_users) * (1 - 1 / view.size) for view in mechanism.views]
    shares = np.concatenate([each.shares for each in estimate.tables])

    def theory(squares: Sequence[float], weights: Sequence[int]) -> float:
        return float(np.average(squares, weights=weights)) / n_users**2

    return Repeat(
        seconds=seconds,
        errors={
            "mse": mse_of(shares, truth),
            "mse_raw": mse_of(np.concatenate(raw) / n_users, truth),
            "mse_margins": mse_of(found_margins, true_margins),
        },
        mse_theory=theory(of_cells, sizes),
        theories={
            "theory_raw": theory(of_raw, sizes),
            "theory_margins": theory(of_margins, mechanism.attribute_sizes),
        },
        one_by_one=False,
        by_value=ByValue(truth, shares, np.repeat(np.sqrt(of_cells) / n_users, sizes)),
    )


def _errors_of_means(people: Population, epsilon: float, delta: float, _seed: int) -> CentralErrors:
    """Return the errors of means; the owners of a key are a mean of 0 or 1."""
    n_users, size = people.n_users, people.domain_size
    numbers = people.question.get("numbers") or NumberDraft()
    half = 0.5 if "pairs" in KINDS[people.kind].tables else (numbers.high - numbers.low) / 2
    return central.errors_of_means(n_users, size, half, epsilon, delta)


def _errors_of_tables(people: Population, *target: float) -> CentralErrors:
    square = tables_square(Tables.specify(people.question["tables"]))
    return {"gaussian_mse": gaussian_error(square, people.n_users, *target[:2])}


class Asked(NamedTuple):
    """The people to simulate, as a command asks for them."""

    kind: Kind
    data: Dataset | None
    users: int | None
    span: tuple[float, float] | None
    buckets: int
    seed: int
    attribute_sizes: str = ""


def _draw_values(
    asked: Asked, build: Callable[[SamplePeople, str], Population] = Population.of_values
) -> Population:
    kind, data, users, span, _, seed, sizes = asked
    if data is not None:
        people = samples.people_of(data, kind, users, seed, span)
        return dataclasses.replace(build(people, data.name), remarks=data.remarks)
    people = samples.sample_people(kind, users, seed)
    if sizes:
        attributes, rng = parse_tables(sizes).attributes, np.random.default_rng(seed)
        title = "Attributes that depend on a common number"
        people = samples.with_attributes(attributes, len(people.values), rng, title, {})
    return build(people, "sample")


def _of_people(
    simulate: Callable[[Task, SamplePeople, np.random.Generator], Repeat],
) -> Callable[[Population, Task, Seed, bool], Repeat]:
    """Return the simulation of users with fixed values."""
    return lambda people, task, seed, _: simulate(
        task, cast("SamplePeople", people.source), np.random.default_rng(seed)
    )


class SimulatedKind(NamedTuple):
    """The simulator's part of one kind of value."""

    units: str
    """The figures whose mean squared error is measured."""
    repeat: Callable[[Population, Task, Seed, bool], Repeat]
    central: Callable[[Population, float, float, int], CentralErrors] = lambda *_: {}
    """Returns the errors of central mechanisms; for items, on the first repeat's users."""
    draw: Callable[[Asked], Population] = _draw_values
    true_figure: str = "true share"
    sized: str = "values"
    """What the domain size counts."""
    dataset: str | None = None
    """The data set by default; None for the demo's people."""
    compared: tuple[str, ...] = ()
    """The protocols to compare by default; empty for all."""


SIMULATED_KINDS: Final[Mapping[Kind, SimulatedKind]] = {
    "categorical": SimulatedKind(
        *("shares", _repeat_items),
        lambda people, epsilon, delta, seed: central.errors_of_items(
            people.sample_counts(seed, 0), epsilon, delta
        ),
        lambda asked: Population.of_items(cast("Dataset", asked.data), asked.users),
        dataset=IPUMS_1940_CITY,
        compared=("od-hp",),
    ),
    "ordered": SimulatedKind(
        *("shares below an edge", _repeat_items),
        draw=lambda ask: Population.of_numbers(ask.data, ask.users, ask.buckets, ask.span),
        compared=("hierarchy", "puredump", "mixdump", "signed", "od-hp", "ldp-sw"),
    ),
    "string": SimulatedKind(
        *("shares of candidates", _of_people(_repeat_texts)),
        lambda people, *target: central.errors_of_texts(people.n_users, *target[:2]),
    ),
    # Random codes, with shares by Zipf's law.
    "open": SimulatedKind(
        *("shares of the values found", _of_people(_repeat_open)), dataset="zipf:50000"
    ),
    "mean": SimulatedKind(
        *("a mean", _of_people(_repeat_numbers), _errors_of_means), true_figure="true mean"
    ),
    "vector": SimulatedKind(
        *("means", _of_people(_repeat_numbers), _errors_of_means),
        true_figure="true mean",
        sized="numbers",
    ),
    "key-value": SimulatedKind(
        *("shares of owners", _of_people(_repeat_pairs), _errors_of_means), sized="keys"
    ),
    "table": SimulatedKind(
        *("cells", _repeat_tables, _errors_of_tables),
        draw=partial(_draw_values, build=Population.of_tables),
        sized="attributes",
    ),
}
