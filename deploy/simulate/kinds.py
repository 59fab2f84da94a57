"""
Collections of texts, numbers and pairs without network and without sealing, compared with theory.

Randomizers and estimators are those of the services; what is not played is who sees what. Texts are
not reported one by one: the mechanism draws what their filters come to, which has the same law. Run
by researchers; the randomness is seeded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from analyzer.estimation.dispatch import estimate_of
from common.errors import ShuffleDpError, TaskError
from common.mechanisms.base import Counts, Mixture, Vector
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.numeric.number import to_unit
from common.mechanisms.registry import (
    number_mechanism_of,
    priv_kv_of,
    randomizer_of,
    rappor_of,
)
from common.messages.estimate import BitTable, Estimate, KeyValues, Means
from common.protocols import Kind
from common.task.draft import NumberDraft
from common.task.specs import KeyValueSpec, NumberSpec, spec_as
from common.task.task import Task
from deploy.datasets.sample_people import SamplePeople
from deploy.planning.kind_planning import KindDesign, KindWishes, design_of, predicted_mse
from deploy.results.decoded_texts import decode_candidates
from deploy.simulate.baselines.central_histogram import CentralHistogram
from deploy.simulate.baselines.central_mean import CentralMean
from deploy.simulate.errors import Summary

_LAPLACE: Final = "central Laplace"
_GAUSSIAN: Final = "central Gaussian"
_DRAFTED: Final = ("labels", "numbers", "texts", "pairs")
"""What of the people's draft belongs to the question, and not to a protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """A protocol at a target: what it took, and how far off it was."""

    protocol: str
    target_epsilon: float
    design: KindDesign | None = None
    """None where no parameters keep the target."""
    refusal: str = ""
    repeats: int = 0
    mse: Summary | None = None
    """Of the unbiased figures: means, or shares of texts and of owners."""
    mse_shrunk: Summary | None = None
    """Of shrunk means; None of other kinds."""
    mse_theory: float = 0.0
    """For these very people."""
    mse_central: Mapping[str, float] | None = None
    """What somebody trusted with all values would err by, at the same ε and δ."""

    def as_json(self) -> dict[str, Any]:
        """Give every figure, flat; those of a refused row are left out."""
        fields: dict[str, Any] = {
            "protocol": self.protocol,
            "target_epsilon": self.target_epsilon,
        }
        for name, error in (self.mse_central or {}).items():
            fields[f"{name.lower().replace(' ', '_')}_mse"] = error
        if self.design is None or self.mse is None:
            return {**fields, "refusal": self.refusal}
        task = self.design.task
        fields |= {
            "local_epsilon": task.local_epsilon,
            "central_epsilon": task.central_epsilon,
            "delta": task.delta,
            "mse": self.mse.mean,
            "mse_standard_error": self.mse.stated_error(self.repeats),
            "mse_theory": self.mse_theory,
        }
        if self.mse_shrunk is not None:
            fields["mse_shrunk"] = self.mse_shrunk.mean
            fields["mse_shrunk_standard_error"] = self.mse_shrunk.stated_error(self.repeats)
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSweep:
    """What is asked for."""

    people: SamplePeople
    protocols: tuple[str, ...]
    central_epsilons: tuple[float, ...]
    delta: float
    local_cap: float
    repeats: int
    seed: int

    def wishes(self, central_epsilon: float) -> KindWishes:
        """Give a target as the planner takes it."""
        people = self.people
        n_users = len(people.values)
        fields = {name: people.draft[name] for name in _DRAFTED if name in people.draft}
        return KindWishes(
            kind=people.kind,
            n_users=n_users,
            n_min=n_users,
            central_epsilon=central_epsilon,
            delta=self.delta,
            size=people.draft.get("domain_size", 1),
            local_cap=self.local_cap,
            fields=fields,
        )


def run_kinds(sweep: KindSweep, progress: Callable[[int, int], None]) -> list[KindRow]:
    """
    Run every protocol at every target.

    Args:
        sweep: What is asked for.
        progress: Told how many rows are done, and of how many.

    Raises:
        PlanError: A target is out of range.
    """
    targets = [sweep.wishes(target) for target in sweep.central_epsilons]
    asked = [(name, wishes) for name in sweep.protocols for wishes in targets]
    rows = []
    for place, (protocol, wishes) in enumerate(asked):
        progress(place, len(asked))
        rows.append(_row(sweep, protocol, wishes, place))
    progress(len(asked), len(asked))
    return rows


def _row(sweep: KindSweep, protocol: str, wishes: KindWishes, place: int) -> KindRow:
    target = wishes.central_epsilon
    central = central_errors(sweep.people, target, sweep.delta)
    asked = KindRow(protocol=protocol, target_epsilon=target, mse_central=central)
    try:
        design = design_of(protocol, wishes)
    except ShuffleDpError as error:
        return _refused(asked, str(error))
    errors = [
        _errors(
            design.task,
            collected(design.task, sweep.people, np.random.default_rng((sweep.seed, place, each))),
            sweep.people,
        )
        for each in range(sweep.repeats)
    ]
    shrunk = [error[1] for error in errors if error[1] is not None]
    return KindRow(
        protocol=protocol,
        target_epsilon=target,
        design=design,
        repeats=sweep.repeats,
        mse=Summary.of([error[0] for error in errors]),
        mse_shrunk=Summary.of(shrunk) if shrunk else None,
        mse_theory=theory(design.task, sweep.people),
        mse_central=central,
    )


def _refused(asked: KindRow, why: str) -> KindRow:
    return KindRow(
        protocol=asked.protocol,
        target_epsilon=asked.target_epsilon,
        mse_central=asked.mse_central,
        refusal=why,
    )


def collected(task: Task, people: SamplePeople, rng: np.random.Generator) -> Estimate:
    """Let everybody report once, and estimate as the analyzer does."""
    cells = _cells(task, people, rng)
    return estimate_of(task, randomizer_of(task), cells, Mixture(n_real=len(people.values)))


def _cells(task: Task, people: SamplePeople, rng: np.random.Generator) -> Counts:
    return _CELLS[task.kind](task, people, rng)


def _text_cells(task: Task, people: SamplePeople, rng: np.random.Generator) -> Counts:
    texts, counts = np.unique(np.array(people.values, dtype=np.str_), return_counts=True)
    return rappor_of(task).sample_cells(counts.astype(np.int64), texts.tolist(), rng)


def _number_cells(task: Task, people: SamplePeople, rng: np.random.Generator) -> Counts:
    numbers = number_mechanism_of(task)
    return numbers.tally(numbers.randomize(_unit(task, people), rng))


def _pair_cells(task: Task, people: SamplePeople, rng: np.random.Generator) -> Counts:
    spec, mechanism = spec_as(task.mechanism, KeyValueSpec), priv_kv_of(task)
    return mechanism.tally(mechanism.randomize(_pairs(people, spec), rng))


_CELLS: Final[Mapping[Kind, Callable[[Task, SamplePeople, np.random.Generator], Counts]]] = {
    "string": _text_cells,
    "mean": _number_cells,
    "vector": _number_cells,
    "key-value": _pair_cells,
}


def _unit(task: Task, people: SamplePeople) -> Vector:
    spec = spec_as(task.mechanism, NumberSpec)
    table = np.array(people.values, dtype=np.float64).reshape(len(people.values), -1)
    return to_unit(table, spec.low, spec.high)


def _pairs(people: SamplePeople, spec: KeyValueSpec) -> Pairs:
    owned = [cast("Mapping[int, float]", value) for value in people.values]
    counts = np.array([len(each) for each in owned], dtype=np.int64)
    keys = [key for each in owned for key in sorted(each)]
    values = [each[key] for each in owned for key in sorted(each)]
    return Pairs(
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        keys=np.array(keys, dtype=np.int64),
        values=to_unit(np.array(values, dtype=np.float64), spec.low, spec.high),
    )


def _errors(task: Task, estimate: Estimate, people: SamplePeople) -> tuple[float, float | None]:
    """Give the mean squared error of the unbiased figures, and of shrunk ones if there are any."""
    if isinstance(estimate, Means):
        return _mse(estimate.means, people.truth), _mse(estimate.shrunk, people.truth)
    if isinstance(estimate, KeyValues):
        if estimate.owners is None:
            raise TaskError("key_share is 0; owners' shares are compared, so it must be above 0")
        return _mse(estimate.owners.frequencies, people.truth), None
    table = cast("BitTable", estimate)
    return _mse(decode_candidates(task, table, people.candidates).shares, people.truth), None


def _mse(estimate: Vector, truth: Vector) -> float:
    return float(np.mean((estimate - truth) ** 2))


def theory(task: Task, people: SamplePeople) -> float:
    """
    Give the mean squared error that is expected for these very people.

    Of numbers the exact variance; of owners' shares likewise; of texts that of a rare one, as
    planned with: a floor.
    """
    return _THEORY[task.kind](task, people)


def _text_theory(task: Task, people: SamplePeople) -> float:
    return predicted_mse(task, len(people.values))


def _pair_theory(task: Task, people: SamplePeople) -> float:
    spec = spec_as(task.mechanism, KeyValueSpec)
    half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
    means = np.zeros(task.domain_size) if people.true_means is None else people.true_means
    unit = np.clip((means - middle) / half, -1, 1)
    expected = priv_kv_of(task).expected(people.truth, unit, len(people.values))
    return float((expected.frequency_errors**2).mean())


def _number_theory(task: Task, people: SamplePeople) -> float:
    numbers = spec_as(task.mechanism, NumberSpec)
    half = (numbers.high - numbers.low) / 2
    return float(half**2 * number_mechanism_of(task).variance(_unit(task, people)).mean())


_THEORY: Final[Mapping[Kind, Callable[[Task, SamplePeople], float]]] = {
    "string": _text_theory,
    "mean": _number_theory,
    "vector": _number_theory,
    "key-value": _pair_theory,
}


def central_errors(people: SamplePeople, epsilon: float, delta: float) -> dict[str, float]:
    """
    Give the exact errors of somebody trusted with all values, at a target.

    Of texts that of a histogram; of numbers that of their means over the range; of owners' shares
    that of means of what is 0 or 1, for every key.
    """
    n_users = len(people.values)
    if people.kind == "string":
        return {
            _LAPLACE: CentralHistogram.laplace(epsilon).mse(n_users),
            _GAUSSIAN: CentralHistogram.gaussian(epsilon, delta).mse(n_users),
        }
    size, half = people.draft.get("domain_size", 1), 0.5
    if people.kind != "key-value":
        numbers = people.draft.get("numbers") or NumberDraft()
        half = (numbers.high - numbers.low) / 2
    return {
        _LAPLACE: half**2 * CentralMean.laplace(epsilon, size).mse(n_users),
        _GAUSSIAN: half**2 * CentralMean.gaussian(epsilon, delta, size).mse(n_users),
    }


def best(rows: Sequence[KindRow], target: float) -> KindRow | None:
    """Give the row of a target with the least error."""
    known = [row for row in rows if row.mse is not None and row.target_epsilon == target]
    return min(known, key=lambda row: row.mse.mean if row.mse else np.inf, default=None)
