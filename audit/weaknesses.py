"""Faulty code that the self-test gives to scenarios in place of the deployed code."""

import hashlib
import math
import shutil
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
from numpy.random import Generator

from analyzer.sentinels import SentinelMatches
from analyzer.storage.store import Store
from audit.coalitions.messages import proven_epsilon
from audit.coalitions.whole_batch import GAME_USERS
from audit.families.family import Family, Items
from audit.harness.analyzer_core import InlineExecutor, InProcessAnalyzer
from audit.harness.in_process_run import DishonestShuffler, InProcessRun, Tampering
from audit.harness.shuffler_core import permuting
from audit.scenario import AuditSubject, Weakness
from common.accounting import guarantees
from common.accounting.privacy_parameters import PrivacyParameters
from common.crypto.privacy_tokens import PendingToken
from common.errors import ConflictError, WireError
from common.mechanisms.base import Mechanism, Randomizer, Reports, Tally
from common.messages.batch import BatchManifest
from common.messages.guarantee import Coalition, Guarantee
from common.messages.inclusion_proof import distinct_rows
from common.messages.submission import Value
from common.receiving import received_job
from common.runtime.parts.executor import Executor, J, T
from common.task.dummies import Drawn
from common.task.shuffler_spec import ShufflerSpec
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.results import result_from_bytes, result_to_wire
from shuffler.permutation import SealedReports, permute
from shuffler.relay import layer_jobs
from shuffler.shuffle_job import PERMUTED, ShuffleJob
from user_agent.contribution import Contributor, PreparedSubmission
from user_agent.device_store import DeviceStore, InclusionState, SavedSubmission

_WRONG_DEVICES: Final = 5
"""One device in this many answers with another value."""
_OVERSTATED: Final = 100
"""Factor on the users who add dummies: ε falls about with the square root of their number, so it is
stated as a tenth, far below what the attack among few users gains."""


class Understated(Weakness):
    """The task states a quarter of its local epsilon, at most 5."""

    def local_guarantee(self, coalition: Coalition, parameters: PrivacyParameters) -> Guarantee:
        claimed = guarantees.local_guarantee(coalition, parameters)
        return replace(claimed, epsilon=min(claimed.epsilon / 4, 5.0))


class ColludersCounted(Weakness):
    """The claims count colluding users as honest."""

    def analyzer_guarantee(self, parameters: PrivacyParameters, n: int, honest: int) -> Guarantee:
        return guarantees.analyzer_guarantee(parameters, n, n)

    def applies(self, subject: AuditSubject) -> bool:
        if subject.parameters.reduction is None:
            return False
        claim, n_users = guarantees.analyzer_guarantee, subject.n_users
        alone, together = (claim(subject.parameters, n_users, left) for left in (1, n_users))
        return alone.epsilon > together.epsilon


class SkippersCounted(Weakness):
    """The claims count skipped dummies and a hundred times the users."""

    def skippers_guarantee(self, parameters: PrivacyParameters, n: int, adding: int) -> Guarantee:
        return guarantees.skippers_guarantee(parameters, _OVERSTATED * n, _OVERSTATED * n)

    def applies(self, subject: AuditSubject) -> bool:
        return bool(proven_epsilon(subject.parameters, GAME_USERS, 1))


class RoundsNotCounted(Weakness):
    """The claims count one round only."""

    def local_guarantee(self, coalition: Coalition, parameters: PrivacyParameters) -> Guarantee:
        return guarantees.local_guarantee(coalition, replace(parameters, rounds=1))

    def analyzer_guarantee(self, parameters: PrivacyParameters, n: int, honest: int) -> Guarantee:
        return guarantees.analyzer_guarantee(replace(parameters, rounds=1), n, honest)

    def applies(self, subject: AuditSubject) -> bool:
        return math.isfinite(subject.task.local_epsilon)


class ReportLost(Weakness):
    """The shuffler loses one report of each batch."""

    def permute(self, reports: SealedReports, rng: Generator) -> SealedReports:
        return permute(reports, rng)[:-1]


class NotBlinded(Weakness):
    """Devices do not blind their requests for tokens."""

    def draw_token(self, *arguments: Any) -> PendingToken:  # noqa: ANN401  # as deployed
        return replace(PendingToken.draw(*arguments), r=2)


class DigestWithoutNMin(Weakness):
    """The task's digest does not cover n_min."""

    def task_bytes(self, task: Task) -> bytes:
        return replace(task, n_min=2).to_bytes()


class SameSeed(Weakness):
    """Devices start their generator from the same seed each time."""

    def start_generator(self, rng: Generator) -> Generator:
        return np.random.default_rng(1)


class _SeedCopier:
    """A mechanism whose dummies have the seed of the last report."""

    def __init__(self, deployed: Any) -> None:  # noqa: ANN401  # any mechanism for items
        self._deployed = deployed

    def randomize(self, values: Items, rng: Generator) -> Reports:
        reports: Reports = self._deployed.randomize(values, rng)
        self._seed = reports["seed"]
        return reports

    def dummies(self, count: int, rng: Generator) -> Reports:
        dummies: Reports = self._deployed.dummies(count, rng)
        dummies["seed"] = self._seed
        return dummies


class _SeedReuser(Contributor):
    def __init__(self, task: Task, digest: TaskDigest) -> None:
        super().__init__(task, digest)
        names = self._mechanism.report_dtype.names or ()
        self._copies = "seed" in names and task.dummies.maximum > 0
        if self._copies:
            self._mechanism = cast("Randomizer", _SeedCopier(self._mechanism))

    def prepare(self, value: Value, rng: Generator) -> PreparedSubmission:
        return super().prepare(value, rng if self._copies else np.random.default_rng(1))


class SeedReused(Weakness):
    """Devices copy their report's seed to dummies or, without these, restart their generator."""

    contributor = _SeedReuser


class NoiseAlone(Weakness):
    """Reports carry noise alone, so that the attack cannot read them."""

    def randomize(self, mechanism: Mechanism, values: Items, rng: Generator) -> Reports:
        return mechanism.dummies(len(values), rng)


class CutOnce(Weakness):
    """The shuffler cuts the batch once instead of shuffling it."""

    def permute(self, reports: SealedReports, rng: Generator) -> SealedReports:
        return np.roll(reports, int(rng.integers(len(reports) + 1)), axis=0)


class WrongValues(Weakness):
    """One device in five answers with a value other than its user's."""

    def draw_reports(self, family: Family[Any], value: Value, n: int, rng: Generator) -> Reports:
        other = next(held for pair in family.worst_values for held in pair if held != value)
        wrong = n // _WRONG_DEVICES
        drawn = [family.draw(value, n - wrong, rng), family.draw(other, wrong, rng)]
        return rng.permutation(np.concatenate(drawn))


class DummyLeftOut(Weakness):
    """Devices and the shuffler leave out one dummy."""

    def draw_numbers(self, task: Task, n_users: int, rng: Generator) -> Items:
        return np.maximum(super().draw_numbers(task, n_users, rng) - 1, 0)

    def draw_dummies(self, task: Task, mechanism: Mechanism, n: int, rng: Generator) -> Drawn:
        numbers, dummies = super().draw_dummies(task, mechanism, n, rng)
        first = (np.cumsum(numbers) - numbers)[numbers > 0]
        return np.maximum(numbers - 1, 0), np.delete(dummies, first)

    def draw_item_dummies(self, spec: ShufflerSpec, n_items: int, rng: Generator) -> Items:
        return np.maximum(super().draw_item_dummies(spec, n_items, rng) - 1, 0)


class PermutesOnly(Weakness):
    """The honest one of two shufflers adds no dummies."""

    shuffling = staticmethod(permuting)


class NoiseAfterAll(Weakness):
    """Shufflers that only permute add dummies."""

    permuting = nullcontext


class _RepeatKeeper(InlineExecutor):
    async def run(self, *arguments: Any) -> list[Any]:  # noqa: ANN401  # as deployed
        """Keep all rows where repeated ones are dropped."""
        places: tuple[Any, ...] = (received_job, layer_jobs)
        for place in places:
            place.distinct_rows = np.asarray
        try:
            return await super().run(*arguments)
        finally:
            for place in places:
                place.distinct_rows = distinct_rows


class RepeatsKept(Weakness):
    """The second shuffler does not drop repeated layers and reports."""

    def shuffler_executor(self, executor: Executor) -> Executor:
        return _RepeatKeeper()


class SetBack(Weakness):
    """The honest shuffler's disk, keys and marks included, is set back before each delivery."""

    async def before_delivery(self, party: Any, number: int) -> None:  # noqa: ANN401  # a shuffler
        copy = party.path.with_suffix(".copy")
        kept, lost = (copy, party.path) if number else (party.path, copy)
        party.store.close()
        shutil.rmtree(lost, ignore_errors=True)
        shutil.copytree(kept, lost)
        await party.start()


class _TrustingStore(DeviceStore):
    async def list_unchecked(self) -> list[SavedSubmission]:
        """Return answers whose batch may have any number of reports."""
        return [replace(each, most_leaves=2**63 - 1) for each in await super().list_unchecked()]


class UnboundedTree(Weakness):
    """Devices accept a tree of any size."""

    device_store = _TrustingStore


class OrderKept(Weakness):
    """The shuffler delivers reports in arrival order."""

    def shuffler_executor(self, executor: Executor) -> Executor:
        return _OrderKeeper(executor)


class _OrderKeeper(Executor):
    def __init__(self, deployed: Executor) -> None:
        self._deployed = deployed

    async def run(self, stage: Any, job: J, parts: Any) -> list[T]:  # noqa: ANN401  # as deployed
        kept: Any = _keep_order if stage is ShuffleJob.permute else stage
        return await self._deployed.run(kept, job, parts)


def _keep_order(job: ShuffleJob, bucket: int) -> tuple[int, float, bytes]:
    """Save a bucket's reports in the order of arrival, as a stage of the job."""
    blocks, parts = job.sealed_blocks(), range(job.n_parts + job.n_dummy_parts)
    reports = b"".join(blocks.get(f"scattered/{part}.{bucket}") for part in parts)
    blocks.put(f"{PERMUTED}/{bucket}", reports, durable=True)
    size = job.task.report_bytes_at(job.hop + 1)
    return len(reports) // size, 0.0, hashlib.sha256(reports).digest()


class CountedTwice(Weakness):
    """The analyzer counts every report of a fake user twice."""

    def tally(self, mechanism: Randomizer, reports: Reports) -> Tally:
        return mechanism.tally(np.concatenate([reports, reports]))


class AnyLength(Weakness):
    """The shuffler does not count the reports of a submission."""

    def check_length(self, envelope: bytes, task: Task) -> None:
        """Accept it."""


class _DroppingShuffler(DishonestShuffler):
    async def deliver(self, tampering: Tampering) -> None:
        await super().deliver(lambda own, users: tampering(own, users[1:]))


class UserDropped(Weakness):
    """The shuffler drops one submission."""

    parties = partial(InProcessRun, shuffler_type=_DroppingShuffler)


class _UncheckedRun(InProcessRun):
    async def plant(self, count: int) -> None:
        """Plant nothing."""

    async def inclusions(self, n_users: int) -> list[InclusionState]:
        return [InclusionState.UNCHECKED] * n_users


class NoDetection(Weakness):
    """No device checks that it was counted, and the analyzer knows no sentinel."""

    parties = _UncheckedRun

    def check_sentinels(self, matches: SentinelMatches, task: Task) -> None:
        """Accept the batch."""


class _ForgetfulStore(Store):
    async def result(self, digest: TaskDigest) -> bytes | None:
        """Return a result without the numbers of refused reports."""
        stored = await super().result(digest)
        if stored is None:
            return None
        result = result_from_bytes(stored)
        forgotten = replace(result, refused=dict.fromkeys(result.refused, 0))
        return result_to_wire(forgotten).SerializeToString()


class _ForgetfulAnalyzer(InProcessAnalyzer):
    store_type = _ForgetfulStore
    most_refused_share = 1.0


class CopiesAccepted(Weakness):
    """The analyzer accepts copies and does not report them."""

    parties = partial(InProcessRun, analyzer_type=_ForgetfulAnalyzer)


class _SilentRun(InProcessRun):
    async def deliver(self, manifest: BatchManifest, reports: list[bytes]) -> None:
        with suppress(WireError, ConflictError):
            await super().deliver(manifest, reports)


class NoRefusal(Weakness):
    """The analyzer reports no error when it refuses a batch."""

    parties = _SilentRun
