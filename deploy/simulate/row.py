"""One line of a comparison: a protocol at a target, what it took, and how far off it was."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from common.messages.guarantee import REPLACE_ONE
from common.task.task import Task
from deploy.simulate.baselines.central_error import Reference
from deploy.simulate.errors import Errors, Summary
from deploy.terminal.json_output import number_or_text

Accounting = Literal["published", "tight"]

ERRORS: Final = (
    "mse",
    "mse_refined",
    "mse_top50",
    "mse_top50_refined",
    "max_error",
    "relative_error",
    "regret",
)
"""Fields of Errors that a row holds, each with its standard error over the repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One protocol at one target, with its parameters found; or why there are none."""

    protocol: str
    target_epsilon: float
    accounting: Accounting
    task_bytes: bytes = b""
    note: str = ""
    published: str = ""
    """What the protocol's own bound claims for these parameters, in words."""
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One simulated collection."""

    errors: Errors
    mse_theory: float
    """Mean over values of the exact variance at the true shares."""
    seconds: float
    """From values to shares: randomizing, counting, estimating, refining. Where counts are drawn
    instead of messages, the first two are left out."""
    one_by_one: bool = True
    """Whether every message was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A setting and what its repeats came to."""

    setting: Setting
    n_users: int
    domain_size: int
    dataset: str
    task: Task | None
    """None where the setting was refused."""
    errors: dict[str, Summary]
    mse_theory: float
    seconds: float
    one_by_one: bool
    repeats: int
    reference: Reference | None = None
    """What a trusted collector would err by at the same target."""

    @classmethod
    def of(
        cls,
        setting: Setting,
        repeats: Sequence[Repeat],
        *,
        n_users: int,
        domain_size: int,
        dataset: str,
        reference: Reference | None = None,
    ) -> "Row":
        """Summarise repeats; there are none where the setting was refused."""
        return cls(
            setting=setting,
            n_users=n_users,
            domain_size=domain_size,
            dataset=dataset,
            task=Task.from_bytes(setting.task_bytes) if setting.task_bytes else None,
            errors={
                name: Summary.of([getattr(each.errors, name) for each in repeats])
                for name in ERRORS
                if repeats
            },
            mse_theory=statistics.fmean(each.mse_theory for each in repeats)
            if repeats
            else math.nan,
            seconds=statistics.fmean(each.seconds for each in repeats) if repeats else math.nan,
            one_by_one=all(each.one_by_one for each in repeats),
            repeats=len(repeats),
            reference=reference,
        )

    @property
    def messages_per_user(self) -> float:
        """Expected messages of a user."""
        return math.nan if self.task is None else 1 + self.task.dummies.expected_per_user

    def as_json(self) -> dict[str, Any]:
        """Give every field, flat: for JSON and for CSV."""
        setting, task = self.setting, self.task
        fields: dict[str, Any] = {
            "protocol": setting.protocol,
            "target_epsilon": setting.target_epsilon,
            "accounting": setting.accounting,
            "dataset": self.dataset,
            "n_users": self.n_users,
            "domain_size": self.domain_size,
        }
        if task is None:
            return fields | {"refusal": setting.refusal}
        mean, spread = task.shuffler.moments()
        fields |= {
            "mechanism": task.mechanism.name,
            "buckets": task.item_mechanism.buckets,
            "dummies_per_user": task.dummies.expected_per_user,
            "messages_per_user": self.messages_per_user,
            "bytes_per_user": task.envelope_bytes,
            "shuffler_keeps": task.shuffler.kept,
            "shuffler_dummies_per_item": mean,
            "shuffler_dummies_variance": spread,
            "refinement": task.refinement,
        }
        for name, summary in self.errors.items():
            fields[name] = summary.mean
            fields[f"{name}_se"] = summary.stated_error(self.repeats)
        if self.reference is not None:
            fields |= self.reference.as_json()
        return fields | {
            "mse_theory": self.mse_theory,
            "central_epsilon": number_or_text(task.central_epsilon),
            "local_epsilon": number_or_text(task.local_epsilon),
            "delta": task.delta,
            "neighbouring": REPLACE_ONE,
            "published": setting.published,
            "note": setting.note,
            "repeats": self.repeats,
            "seconds": self.seconds,
            "one_by_one": self.one_by_one,
        }
