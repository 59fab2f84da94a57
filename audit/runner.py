"""Run scenarios in parallel processes from one seed."""

import itertools
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from shuffledp.audit.families.family import NotCoveredError
from shuffledp.audit.finding import Finding, Findings, Verdict
from shuffledp.audit.harness.tasks import sample_chain
from shuffledp.audit.report.audit_report import AuditReport, SelfTestResult
from shuffledp.audit.scenario import FULL, AuditSubject, SampleSizes, Scenario
from shuffledp.audit.scenarios import SCENARIOS
from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.crypto.hpke_pool import worker_pool
from shuffledp.common.crypto.signing import KeyUse, SigningIdentity, digest_of, prove_key
from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.errors import SettingsError, TaskError, UsageError
from shuffledp.common.runtime.validation import read_file
from shuffledp.common.task.task import Task
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.version import VERSION
from shuffledp.deploy.datasets.names import IPUMS_1940_CITY
from shuffledp.deploy.datasets.sources import load
from shuffledp.deploy.tasks import drafts as draft_file
from shuffledp.deploy.tasks.drafts import DEMO_PARAMETERS, closing_draft
from shuffledp.deploy.tasks.task_view import preview

Progress = Callable[[str, int, int], None]
"""Called with the title of a finished scenario, the number finished, and the total."""
_DEMO_USERS: Final = 20_000


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


def progress_printer() -> Progress:
    """Return a callback that prints progress as plain lines on standard error."""
    started = time.monotonic()

    def show(title: str, done: int, total: int) -> None:
        name = f": {title}" if title else ""
        sys.stderr.write(f"[{time.monotonic() - started:3.0f} s] {done} of {total} done{name}\n")
        sys.stderr.flush()

    return show


def subject_from(
    task_file: Path | None, draft: Path | None, users: int | None, sizes: SampleSizes
) -> AuditSubject:
    """
    Return the subject: a task (default: the demo's) and a number of users (default: n_min).

    Without a file, it has a sample of a task with two shufflers too.

    Raises UsageError if both files are given, or `users` is below n_min; SettingsError if one
    cannot be read; TaskError if a file does not contain a valid task or draft.
    """
    if task_file is not None and draft is not None:
        raise UsageError("use --task-file or --draft, not both")
    if task_file is None:
        task = _from_draft(draft)
    else:
        try:
            task = Task.from_bytes(read_file(task_file))
        except TaskError as error:
            raise TaskError(f"{task_file}: {error}; use --draft for a draft") from error
    if users is not None and users < task.n_min:
        raise UsageError(f"--users is {users}; it must be at least n_min, {task.n_min}")
    sample = sample_chain() if task_file is None and draft is None else None
    return AuditSubject(task=task, n_users=users or task.n_min, sizes=sizes, sample=sample)


def _throwaway_tokens(end: int) -> TokenSpec:
    """Return a token key, as of the demo's issuer, whose private half is dropped."""
    key, name = TokenSigningKey(TokenSigningKey.generate()).token_key().der, "issuer.localhost"
    proof = prove_key(SigningIdentity.generate(), KeyUse.TOKENS, name, key, end)
    return TokenSpec(issuer=name, key=key, proof=proof)


def _from_draft(path: Path | None) -> Task:
    """Complete a draft (default: the demo's) with throwaway keys."""
    if path is not None:
        return preview(draft_file.read(path), now=0.0)
    labels = load(IPUMS_1940_CITY).labels
    fields = {"domain_size": len(labels), "labels": labels, **DEMO_PARAMETERS}
    draft = closing_draft(fields, _DEMO_USERS, now=time.time())
    return preview(replace(draft, tokens=_throwaway_tokens(draft.deadline)), now=0.0)
