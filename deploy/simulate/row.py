"""One line of a comparison: a protocol at a target, its task, and its errors."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from common.messages.guarantee import REPLACE_ONE
from common.task.task import Task
from deploy.simulate.baselines import CentralErrors
from deploy.simulate.errors import ByValue, Repeat, Summary
from deploy.simulate.populations import Population
from deploy.terminal.json_output import number_or_text

Accounting = Literal["published", "tight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSetting:
    """One protocol at one target, with the task of its parameters; or why there is none."""

    protocol: str
    target_epsilon: float
    accounting: Accounting
    task_bytes: bytes = b""
    note: str = ""
    published: str = ""
    """The claim of the protocol's own bound for these parameters, in words."""
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepRow:
    """A setting and a summary of its repeats."""

    setting: SweepSetting
    population: Population
    task: Task | None
    """None where the setting was refused."""
    errors: Mapping[str, Summary]
    repeats: Sequence[Repeat]
    """None where the setting was refused; the first may have figures by value."""
    reference: CentralErrors
    """Errors of a trusted collector at the same target; may be empty."""

    @classmethod
    def of(
        cls,
        setting: SweepSetting,
        repeats: Sequence[Repeat],
        population: Population,
        reference: CentralErrors,
    ) -> Self:
        """Summarise repeats."""
        names = repeats[0].errors if repeats else ()
        return cls(
            setting=setting,
            population=population,
            task=Task.from_bytes(setting.task_bytes) if setting.task_bytes else None,
            errors={name: Summary.of([each.errors[name] for each in repeats]) for name in names},
            repeats=repeats,
            reference=reference,
        )

    @property
    def mse_theory(self) -> float:
        """The expected mean squared error, at the true shares of each repeat."""
        return statistics.fmean(each.mse_theory for each in self.repeats)

    @property
    def seconds(self) -> float:
        """The mean time of a repeat."""
        return statistics.fmean(each.seconds for each in self.repeats)

    @property
    def one_by_one(self) -> bool:
        """Whether every message was made."""
        return all(each.one_by_one for each in self.repeats)

    @property
    def by_value(self) -> ByValue | None:
        """The first repeat's figures by value."""
        return self.repeats[0].by_value if self.repeats else None

    def as_json(self) -> dict[str, Any]:
        """Return every field, flat: for JSON and for CSV."""
        setting, task, people = self.setting, self.task, self.population
        fields: dict[str, Any] = {
            "protocol": setting.protocol,
            "target_epsilon": setting.target_epsilon,
            "accounting": setting.accounting,
            "dataset": people.name,
            "n_users": people.n_users,
            "domain_size": people.domain_size,
            **{f"central_{name}": error for name, error in self.reference.items()},
        }
        if task is None:
            return fields | {"refusal": setting.refusal}
        items = people.kind == "categorical"
        several = len(self.repeats) > 1
        for name, summary in self.errors.items():
            fields[name] = summary.mean
            error = f"{name}_se" if items else f"{name}_standard_error"
            fields[error] = summary.standard_error if several else None
        if items:
            mean, spread = task.shuffler.moments()
            fields |= {
                "buckets": task.item_mechanism.buckets,
                "dummies_per_user": task.dummies.expected_per_user,
                "messages_per_user": 1 + task.dummies.expected_per_user,
                "shuffler_keeps": task.shuffler.kept,
                "shuffler_dummies_per_item": mean,
                "shuffler_dummies_variance": spread,
                "refinement": task.refinement,
                "published": setting.published,
                "note": setting.note,
            }
        return fields | {
            "mechanism": task.mechanism.name,
            "bytes_per_user": task.envelope_bytes,
            "mse_theory": self.mse_theory,
            "central_epsilon": number_or_text(task.central_epsilon),
            "local_epsilon": number_or_text(task.local_epsilon),
            "delta": task.delta,
            "neighbouring": REPLACE_ONE,
            "repeats": len(self.repeats),
            "seconds": self.seconds,
            "one_by_one": self.one_by_one,
        }
