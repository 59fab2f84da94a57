"""Simulate protocols × targets × repeats on all cores; each repeat has its own seed."""

import dataclasses
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import Any, Final, TypeVar, get_args

import shuffledp.common.runtime.blas_threads  # noqa: F401  # for the workers of programs that import this
from shuffledp.common.accounting.guarantees import published_claim
from shuffledp.common.crypto.hpke_pool import worker_pool
from shuffledp.common.errors import ShuffleDpError, TaskError, UsageError
from shuffledp.common.messages.guarantee import REPLACE_ONE, default_delta
from shuffledp.common.protocols import PROTOCOLS, protocol_named, protocols_of
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.specs import check_int_range, check_range
from shuffledp.common.task.task import Task
from shuffledp.lab.planning.central_mechanisms import CentralErrors
from shuffledp.lab.planning.planner import search
from shuffledp.lab.planning.question import coalition_target, usual_local_cap
from shuffledp.lab.planning.requirements import Accounting, Requirements
from shuffledp.lab.simulate.accuracy import LEAST_REPEATS, Repeat, Summary
from shuffledp.lab.simulate.populations import SIMULATED_KINDS, Asked, Population, Seed

_MAX_SEEDS: Final = 2**21
"""Maximum seeds of a hash family, so that refinement takes seconds, not minutes."""
_MOST_REPEATS: Final = 1_000_000
_MOST_SEED: Final = 2**63 - 1
_ACCOUNTINGS: Final[tuple[Accounting, ...]] = get_args(Accounting)
_TARGET: Final = 0.2
"""Target ε by default."""

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Function that receives a step's name, the work done and the total."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepRow:
    """A protocol at a target ε with its task and repeats, or the reason why it was skipped."""

    protocol: str
    target_epsilon: float
    accounting: Accounting
    population: Population
    reference: CentralErrors
    """Errors of central mechanisms at the same ε; may be empty."""
    task: Task | None = None
    note: str = ""
    published: str = ""
    """The published bound for these parameters, in words."""
    refusal: str = ""
    """Reason why the setting was skipped."""
    repeats: Sequence[Repeat] = ()
    """Empty if and only if the setting was skipped; the first may have estimates by value."""

    def __repr__(self) -> str:
        """Return one line, for notebooks."""
        found = self.refusal
        if self.task is not None:
            found = f"mean squared error {self.errors['mse'].format('.3g')}"
            found += f"; {self.warning}" * bool(self.warning)
        return f"<{self.protocol} at central ε {self.target_epsilon:g}: {found}>"

    @property
    def warning(self) -> str:
        """Reason why the estimates say nothing; empty without one."""
        numbers = self.population.question.get("numbers")
        half = (numbers.high - numbers.low) / 2 if numbers else 0.5
        if self.repeats and not any(run.mse_theory for run in self.repeats):
            return "too few users: nothing was found"
        poor = self.repeats and self.errors["mse"].mean > half**2
        guess = "the middle of the range" if numbers else "no estimate"
        return f"too few users: {guess} is a better guess" if poor else ""

    @property
    def errors(self) -> Mapping[str, Summary]:
        """Mean and standard error of each error over the repeats, by name."""
        names = self.repeats[0].errors if self.repeats else ()
        return {name: Summary.of([run.errors[name] for run in self.repeats]) for name in names}

    def as_json(self, *, by_value: bool = False) -> dict[str, Any]:
        """Return the row's JSON fields; `by_value` adds the first repeat's estimates."""
        task, people, repeats = self.task, self.population, self.repeats
        fields: dict[str, Any] = {
            "protocol": self.protocol,
            "target_epsilon": self.target_epsilon,
            "accounting": self.accounting,
            "dataset": people.name,
            "remarks": " ".join(filter(None, (*people.remarks, self.warning))),
            "n_users": people.n_users,
            "domain_size": people.domain_size,
            **{f"central_{name}": error for name, error in self.reference.items()},
        }
        if task is None:
            return fields | {"refusal": self.refusal}
        items = KINDS[people.kind].histogram
        for name, summary in self.errors.items():
            error = f"{name}_se" if items else f"{name}_standard_error"
            fields[name] = summary.mean
            fields[error] = summary.standard_error if len(repeats) >= LEAST_REPEATS else None
        if items:
            mean, variance = task.shuffler.noises[-1].moments()
            fields |= {
                "buckets": task.item_mechanism.buckets,
                "dummies_per_user": task.dummies.expected_per_user,
                "shuffler_keeps": task.shuffler.keep_probability,
                "shuffler_dummies_per_item": mean,
                "shuffler_dummies_variance": variance,
                "refinement": task.refinement,
                "published": self.published,
                "note": self.note,
            }
        if task.relay:
            fields |= {"shufflers": 2, "coalition_epsilon": task.coalition_epsilon}
        fields |= {
            **repeats[0].theories,
            "mechanism": task.mechanism.name,
            "messages_per_user": task.own_reports + task.dummies.expected_sent,
            "bytes_per_user": round(task.expected_envelope_bytes),
            "mse_theory": statistics.fmean(run.mse_theory for run in repeats),
            "central_epsilon": task.central_epsilon,
            "local_epsilon": task.local_epsilon,
            "delta": task.delta,
            "neighbouring": REPLACE_ONE,
            "repeats": len(repeats),
            "seconds": statistics.fmean(run.seconds for run in repeats),
            "one_by_one": all(run.one_by_one for run in repeats),
        }
        estimates = repeats[0].by_value
        if by_value and estimates is not None:
            keys = ("value", "truth", "estimate", "standard_error")
            columns = (people.value_names, *(column.tolist() for column in estimates))
            lines = zip(*columns, strict=True)
            fields["by_value"] = [dict(zip(keys, line, strict=True)) for line in lines]
        return fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """The settings to compare."""

    population: Population
    protocols: tuple[str, ...]
    central_epsilons: tuple[float, ...]
    delta: float
    repeats: int
    messages_cap: float
    local_cap: float
    seed: int
    shufflers: int = 1
    coalition_epsilon: float = 4.0
    """Target ε against the analyzer with either of two shufflers."""
    accounting: tuple[Accounting, ...] = ("tight",)
    one_by_one: bool = False
    """Whether to simulate every report, to compare run times."""

    def requirements(
        self, protocol: str, accounting: Accounting, central_epsilon: float
    ) -> Requirements:
        """Return the planner's requirements for a protocol at a target ε."""
        people = self.population
        own = ("messages_cap", "shufflers", "coalition_epsilon")
        limits = {"trust": "shuffler-dummies", **{name: getattr(self, name) for name in own}}
        allowed = limits.keys() & KINDS[people.kind].requirements
        return Requirements(
            kind=people.kind,
            protocol=protocol,
            accounting=accounting,
            n_users=people.n_users,
            n_min=people.n_users,
            domain_size=people.domain_size,
            central_epsilon=central_epsilon,
            delta=self.delta,
            local_cap=self.local_cap,
            draft_fields=people.draft_fields(protocol),
            most_seeds=_MAX_SEEDS,
            **{name: limits[name] for name in allowed},
        )


def sweep_of(
    asked: Asked,
    protocols: Sequence[str],
    central_epsilons: Sequence[float],
    *,
    accounting: str = "tight",
    repeats: int | None = None,
    messages_cap: float | None = None,
    shufflers: int = 1,
    coalition_epsilon: float | None = None,
    delta: float | None = None,
    local_cap: float | None = None,
    **settings: Any,  # noqa: ANN401  # further fields
) -> Sweep:
    """
    Draw the people, and return their sweep; None and empty stand for a plan's defaults.

    Raises UsageError for an unknown accounting, or a protocol that is unknown or for other data,
    TaskError for a number out of range.
    """
    check_int_range("seed", asked.seed, 0, _MOST_SEED)
    if asked.span is not None:
        check_range(*asked.span)
    kind = asked.kind
    population = SIMULATED_KINDS[kind].draw(asked)
    repeats = population.usual_repeats if repeats is None else repeats
    check_int_range("repeats", repeats, 1, _MOST_REPEATS)
    by_name = {name: (name,) for name in _ACCOUNTINGS} | {"both": _ACCOUNTINGS}
    if accounting not in by_name:
        raise UsageError("accounting must be published, tight or both")
    for name in protocols:
        try:
            row = protocol_named(name)
        except TaskError as error:
            raise UsageError(str(error)) from error
        if not row.collects(kind):
            raise UsageError(f"the protocol {name} is not for {kind} data")
    chained = [name for name in protocols_of(kind) if PROTOCOLS[name].chained and shufflers > 1]
    compared = chained or SIMULATED_KINDS[kind].compared or protocols_of(kind)
    return Sweep(
        population=population,
        protocols=tuple(protocols or compared),
        central_epsilons=tuple(central_epsilons or [_TARGET]),
        accounting=by_name[accounting],
        repeats=repeats,
        messages_cap=math.inf if messages_cap is None else messages_cap,
        shufflers=shufflers,
        coalition_epsilon=coalition_target(coalition_epsilon, shufflers),
        delta=default_delta(population.n_users) if delta is None else delta,
        local_cap=usual_local_cap(kind, 1, shufflers) if local_cap is None else local_cap,
        seed=asked.seed,
        **settings,
    )


def run(sweep: Sweep, progress: Progress, pool: Executor | None = None) -> list[SweepRow]:
    """
    Run every setting of a sweep in `pool`, by default one process per core.

    Returns a row per protocol, accounting and target, in that order, or raises PlanError.
    """
    if pool is None:
        with worker_pool() as workers:
            return run(sweep, progress, workers)
    people = sweep.population
    settings = list(product(sweep.protocols, sweep.accounting, sweep.central_epsilons))
    choosing = pool.map(_choose_task, [sweep.requirements(*setting) for setting in settings])
    chosen = list(_track(choosing, progress, "Choosing parameters", len(settings)))
    jobs = [
        (fields["task"], (sweep.seed, index, number))
        for index, fields in enumerate(chosen)
        if "task" in fields
        for number in range(sweep.repeats)
    ]
    repeat = partial(_repeat, people, one_by_one=sweep.one_by_one)
    chunk = max(1, len(jobs) // (8 * (os.cpu_count() or 1)))
    collecting = pool.map(repeat, jobs, chunksize=chunk)
    repeats = _track(collecting, progress, "Collecting", len(jobs))
    central = {
        epsilon: SIMULATED_KINDS[people.kind].central(people, epsilon, sweep.delta, sweep.seed)
        for epsilon in sweep.central_epsilons
    }
    return [
        SweepRow(
            protocol=protocol,
            accounting=accounting,
            target_epsilon=epsilon,
            population=people,
            reference=central[epsilon],
            repeats=list(islice(repeats, sweep.repeats)) if "task" in fields else [],
            **fields,
        )
        for (protocol, accounting, epsilon), fields in zip(settings, chosen, strict=True)
    ]


def _track(results: Iterator[T], progress: Progress, step: str, total: int) -> Iterator[T]:
    progress(step, 0, total)
    for done, result in enumerate(results, start=1):
        progress(step, done, total)
        yield result


def _choose_task(target: Requirements) -> dict[str, Any]:
    """Return a row's task and notes, or its refusal if no parameters reach the target."""
    try:
        design = search(target).designs[0]
        task = design.task
    except ShuffleDpError as error:
        return {"refusal": str(error)}
    amplified = KINDS[target.kind].histogram and design.row.amplified
    claim = published_claim(task, target.n_users, 0) if amplified else ""
    return {"task": task, "note": design.note, "published": claim}


def _repeat(population: Population, job: tuple[Task, Seed], *, one_by_one: bool) -> Repeat:
    """Run one repeat; only the first of a setting keeps its estimates by value."""
    task, seed = job
    repeat = population.repeat(task, seed, one_by_one=one_by_one)
    return repeat if seed[2] == 0 else dataclasses.replace(repeat, by_value=None)
