"""An audit from its scenarios to its report; and a rehearsal, of faults that it must see."""

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.accounting.guarantees import guarantees
from common.errors import SettingsError
from common.task_digest import TaskDigest
from common.version import VERSION
from deploy.audit.audited import FULL, Audited, Effort
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.faults.catalogue import FAULTS
from deploy.audit.faults.fault import Fault
from deploy.audit.near_name import meant
from deploy.audit.playing import Job, Progress, play_all
from deploy.audit.report import AuditReport
from deploy.audit.scenario import Scenario

_LITTLE: Final = Effort(
    games=200_000,
    crowds=800_000,
    reports=600_000,
    devices=4_000,
    orders=200_000,
    users=300,
)
"""Enough to see faults as large as the planted ones."""


def silent(*_: object) -> None:
    """Tell nobody how far it is."""


def scenarios_named(names: Sequence[str]) -> tuple[Scenario, ...]:
    """
    Give scenarios by name, in the order of a report; all of them for no name.

    Raises:
        SettingsError: There is none of such a name.
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in names:
        if name not in known:
            raise SettingsError(
                f"there is no scenario {name[:64]!r}{meant(name, known)}; --list names all"
            )
    return tuple(scenario for scenario in SCENARIOS if not names or scenario.name in names)


def audit(
    audited: Audited,
    *,
    seed: int,
    scenarios: Sequence[Scenario] = SCENARIOS,
    processes: int = 0,
    fault: str = "",
    command: str = "",
    progress: Progress = silent,
) -> AuditReport:
    """
    Play scenarios and gather what they came to.

    Args:
        audited: The task, how many users, and how much is drawn.
        seed: Each scenario draws from this and its name, so that which others run changes nothing.
        scenarios: Which; those that are not for the task's kind of value are named, not played.
        processes: How many at once; 0 for one a core; 1 for none but this process.
        fault: A fault to plant in every process, by name.
        command: What to type to run it again.
        progress: Told how far it is.

    Returns:
        What was found, in the order of `scenarios`.

    Raises:
        SettingsError: There is no fault of this name.
    """
    started, kind = time.perf_counter(), audited.task.kind
    fitting = [scenario for scenario in scenarios if kind in scenario.kinds]
    jobs = [Job(scenario=scenario, audited=audited, seed=seed, fault=fault) for scenario in fitting]
    outcomes = play_all(jobs, processes, progress)
    return AuditReport(
        task=audited.task,
        task_digest=TaskDigest(hashlib.sha256(audited.task_bytes).digest()),
        n_users=audited.n_users,
        mode="full" if audited.effort == FULL else "quick",
        seed=seed,
        version=VERSION,
        seconds=time.perf_counter() - started,
        outcomes=tuple(outcomes),
        guarantees=guarantees(audited.task, audited.n_users, 0),
        planted=fault,
        idle=tuple(
            scenario.name
            for scenario, outcome in zip(fitting, outcomes, strict=True)
            if not outcome.findings
        ),
        other_kinds=tuple(scenario.name for scenario in scenarios if kind not in scenario.kinds),
        command=command,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What became of one planted fault."""

    fault: Fault
    said: tuple[str, ...]
    """What the scenario found, in its words; nothing if it passed."""
    said_before: tuple[str, ...]
    """What it finds without the fault, and as little effort: nothing, or it shows nothing."""

    @property
    def caught(self) -> bool:
        """Whether the check that must see the fault is what said so, and says so of it alone."""
        return not self.said_before and any(self.fault.check in sentence for sentence in self.said)


def faults_for(audited: Audited, scenarios: Sequence[Scenario]) -> tuple[Fault, ...]:
    """Give the faults that these scenarios must see, and can on a task of this kind of value."""
    able = {scenario.name for scenario in scenarios if audited.task.kind in scenario.kinds}
    return tuple(fault for fault in FAULTS.values() if fault.scenario in able)


def rehearse(
    audited: Audited,
    *,
    seed: int,
    faults: Sequence[Fault] = tuple(FAULTS.values()),
    processes: int = 0,
    progress: Progress = silent,
) -> tuple[Rehearsed, ...]:
    """
    Plant each fault by itself, and play the scenario that must see it; see `audit`.

    Each of these scenarios is played once without a fault as well, and must pass.
    """
    little = dataclasses.replace(audited, effort=_LITTLE)
    needed = scenarios_named(tuple(fault.scenario for fault in faults))
    by_name = {scenario.name: scenario for scenario in needed}
    honest = [Job(scenario=scenario, audited=little, seed=seed) for scenario in needed]
    faulty = [
        Job(
            scenario=dataclasses.replace(by_name[fault.scenario], title=fault.says),
            audited=little,
            seed=seed,
            fault=fault.name,
        )
        for fault in faults
    ]
    said = [
        tuple(row.sentence for row in outcome.findings if not row.passed)
        for outcome in play_all([*honest, *faulty], processes, progress)
    ]
    before = dict(zip(by_name, said[: len(honest)], strict=True))
    return tuple(
        Rehearsed(fault=fault, said=words, said_before=before[fault.scenario])
        for fault, words in zip(faults, said[len(honest) :], strict=True)
    )
