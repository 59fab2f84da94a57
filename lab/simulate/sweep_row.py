"""One row of a comparison: a protocol at a target ε, its task, and its errors."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shuffledp.common.messages.guarantee import REPLACE_ONE
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.task import Task
from shuffledp.lab.planning.requirements import Accounting
from shuffledp.lab.simulate.accuracy import LEAST_REPEATS, Repeat, Summary
from shuffledp.lab.simulate.baselines import CentralErrors
from shuffledp.lab.simulate.populations import Population


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
        return f"<{self.protocol} at central ε {self.target_epsilon:g}: {found}>"

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
            "remarks": " ".join(people.remarks),
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
            fields["by_value"] = [
                dict(zip(keys, line, strict=True)) for line in zip(*columns, strict=True)
            ]
        return fields
