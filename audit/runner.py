"""Run scenarios in parallel processes from one seed, and build the report."""

import itertools
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from audit.families.family import NotCoveredError
from audit.finding import Finding, Findings, Verdict
from audit.report.audit_report import AuditReport, SelfTestResult
from audit.scenario import FULL, AuditSubject, Scenario
from audit.scenarios import SCENARIOS
from common.accounting.guarantees import guarantees
from common.crypto.hpke_pool import worker_pool
from common.crypto.signing import digest_of
from common.errors import SettingsError
from common.version import VERSION

Progress = Callable[[str, int, int], None]
"""Called with the title of a finished scenario, the number finished, and the total."""


def scenarios_named(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Return named scenarios, or all, in report order; raise SettingsError for an unknown name."""
    for name in names:
        if name not in {scenario.name for scenario in SCENARIOS}:
            raise SettingsError(f"there is no scenario {name[:64]!r}; --list shows all")
    return tuple(scenario for scenario in SCENARIOS if not names or scenario.name in names)


@dataclass(frozen=True, kw_only=True)
class AuditRun:
    """Scenarios to run on one subject."""

    subject: AuditSubject
    seed: int
    """Each scenario derives its generator from the seed and its name."""
    scenarios: Sequence[Scenario] = SCENARIOS
    """Scenarios to run; those for other kinds of value are skipped and reported."""
    processes: int = 0
    """Number of parallel processes; 0: one per core; 1: this process only."""
    progress: Progress = lambda *_: None
    """Called at the start and after each scenario."""

    @property
    def _fitting(self) -> list[Scenario]:
        return [one for one in self._of_kind if one.fits(self.subject)]

    @property
    def _of_kind(self) -> list[Scenario]:
        return [one for one in self.scenarios if self.subject.task.kind in one.kinds]

    def audit(self, command: str = "") -> AuditReport:
        """Run the scenarios and report the findings; `command` is the command line, if any."""
        started, subject, scenarios = time.perf_counter(), self.subject, self._fitting
        outcomes = self._run_all([(scenario, False) for scenario in scenarios])
        rows = tuple(itertools.chain.from_iterable(outcomes))
        found = {row.scenario for row in rows}
        return AuditReport(
            task=subject.task,
            task_digest=digest_of(subject.task.to_bytes()),
            n_users=subject.n_users,
            mode="full" if subject.sizes == FULL else "quick",
            seed=self.seed,
            version=VERSION,
            seconds=time.perf_counter() - started,
            rows=rows,
            guarantees=guarantees(subject.task, subject.n_users, 0),
            idle=tuple(one.name for one in scenarios if one.name not in found),
            other_kinds=tuple(one.name for one in self.scenarios if one not in self._of_kind),
            other_shufflers=tuple(one.name for one in self._of_kind if one not in scenarios),
            command=command,
        )

    def self_test(self) -> tuple[SelfTestResult, ...]:
        """Run each scenario on correct code, and with its weakness, which it must detect."""
        scenarios, subject = self._fitting, self.subject
        weak = [scenario for scenario in scenarios if scenario.weakness.applies(subject)]
        jobs = [(scenario, False) for scenario in scenarios]
        jobs += [(scenario, True) for scenario in weak]
        outcomes = self._run_all(jobs)
        names, weakened = (each.name for each in weak), outcomes[len(scenarios) :]
        faulty = dict(zip(names, weakened, strict=True))
        return tuple(
            SelfTestResult(scenario=one, honest=honest, weakened=faulty.get(one.name, ()))
            for one, honest in zip(scenarios, outcomes, strict=False)
        )

    def _run_all(self, jobs: Sequence[tuple[Scenario, bool]]) -> list[Findings]:
        """Run scenarios, each with its weakness or without."""
        self.progress("", 0, len(jobs))
        if self.processes == 1:
            outcomes = list[Findings]()
            for scenario, weak in jobs:
                outcomes.append(run(scenario, self.subject, self.seed, weak=weak))
                self.progress(scenario.title, len(outcomes), len(jobs))
            return outcomes
        with worker_pool(self.processes or None) as pool:
            sent = {
                pool.submit(_run_named, scenario.name, self.subject, self.seed, weak=weak): scenario
                for scenario, weak in jobs
            }
            for done, future in enumerate(as_completed(sent), start=1):
                self.progress(sent[future].title, done, len(jobs))
            return [future.result() for future in sent]


def _run_named(name: str, subject: AuditSubject, seed: int, *, weak: bool) -> Findings:
    """Run a scenario by its name, since weaknesses cannot be sent to other processes."""
    [scenario] = scenarios_named([name])
    return run(scenario, subject, seed, weak=weak)


def run(scenario: Scenario, subject: AuditSubject, seed: int, *, weak: bool = False) -> Findings:
    """Run one scenario in this process; an exception becomes a finding after those before it."""
    rng, found = np.random.default_rng([seed, zlib.crc32(scenario.name.encode())]), list[Finding]()
    subject = replace(subject, ports=scenario.weakness) if weak else subject
    try:
        found.extend(scenario.check(subject, rng))
    except NotCoveredError as error:
        found.append(_stopped("not covered", f"{error}."))
    except Exception as error:  # noqa: BLE001  # every error is reported
        # No message: it might contain a value.
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"
        found.append(_stopped("error", f"The scenario could not be run: {place}."))
    name, title = scenario.name, scenario.title
    return tuple(replace(row, scenario=name, title=row.title or title) for row in found)


def _stopped(verdict: Verdict, sentence: str) -> Finding:
    return Finding(heading="correctness", verdict=verdict, sentence=sentence)
