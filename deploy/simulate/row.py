"""One line of a comparison: a protocol at a target, its task, and its errors."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from common.messages.guarantee import REPLACE_ONE
from common.protocols import Kind
from common.task.task import Task
from deploy.simulate.baselines import CentralErrors
from deploy.simulate.errors import ByValue, Repeat, Summary
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
    """What the protocol's own bound claims for these parameters, in words."""
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """A setting and a summary of its repeats."""

    setting: SweepSetting
    kind: Kind
    n_users: int
    domain_size: int
    dataset: str
    task: Task | None
    """None where the setting was refused."""
    errors: Mapping[str, Summary]
    mse_theory: float
    seconds: float
    one_by_one: bool
    repeats: int
    reference: CentralErrors | None = None
    """Errors of a trusted collector at the same target."""
    by_value: ByValue | None = None
    """Of the first repeat."""

    @classmethod
    def of(
        cls,
        setting: SweepSetting,
        repeats: Sequence[Repeat],
        *,
        n_users: int,
        domain_size: int,
        dataset: str,
        kind: Kind = "categorical",
        reference: CentralErrors | None = None,
    ) -> Self:
        """Summarise repeats; there are none where the setting was refused."""
        names = repeats[0].errors if repeats else ()
        return cls(
            setting=setting,
            kind=kind,
            n_users=n_users,
            domain_size=domain_size,
            dataset=dataset,
            task=Task.from_bytes(setting.task_bytes) if setting.task_bytes else None,
            errors={name: Summary.of([each.errors[name] for each in repeats]) for name in names},
            mse_theory=_mean([each.mse_theory for each in repeats]),
            seconds=_mean([each.seconds for each in repeats]),
            one_by_one=all(each.one_by_one for each in repeats),
            repeats=len(repeats),
            reference=reference,
            by_value=repeats[0].by_value if repeats else None,
        )

    @property
    def messages_per_user(self) -> float:
        """Expected messages of a user."""
        return math.nan if self.task is None else 1 + self.task.dummies.expected_per_user

    def as_json(self) -> dict[str, Any]:
        """Return every field, flat: for JSON and for CSV."""
        setting, task = self.setting, self.task
        fields: dict[str, Any] = {
            "protocol": setting.protocol,
            "target_epsilon": setting.target_epsilon,
            "accounting": setting.accounting,
            "dataset": self.dataset,
            "n_users": self.n_users,
            "domain_size": self.domain_size,
            **(self.reference.as_json() if self.reference else {}),
        }
        if task is None:
            return fields | {"refusal": setting.refusal}
        items = self.kind == "categorical"
        for name, summary in self.errors.items():
            fields[name] = summary.mean
            error = f"{name}_se" if items else f"{name}_standard_error"
            fields[error] = summary.stated_error(self.repeats)
        if items:
            mean, spread = task.shuffler.moments()
            fields |= {
                "buckets": task.item_mechanism.buckets,
                "dummies_per_user": task.dummies.expected_per_user,
                "messages_per_user": self.messages_per_user,
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
            "repeats": self.repeats,
            "seconds": self.seconds,
            "one_by_one": self.one_by_one,
        }


def _mean(numbers: Sequence[float]) -> float:
    return statistics.fmean(numbers) if numbers else math.nan
