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

from shuffledp.analyzer.storage.store import Store
from shuffledp.audit.coalitions.whole_batch import GAME_USERS, proven_epsilon
from shuffledp.audit.families.family import Family, Items
from shuffledp.audit.harness.in_process_run import DishonestShuffler, InProcessRun, Tampering
from shuffledp.audit.harness.party_cores import InlineExecutor, InProcessAnalyzer, permuting
from shuffledp.audit.scenario import AuditSubject, Ports, Weakness
from shuffledp.common.accounting import guarantees
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.errors import ConflictError, WireError
from shuffledp.common.mechanisms.base import Mechanism, Randomizer, Reports
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import BatchManifest
from shuffledp.common.messages.guarantee import Coalition, Guarantee
from shuffledp.common.messages.inclusion_proof import distinct_rows
from shuffledp.common.messages.submission import Value
from shuffledp.common.runtime.parts.executor import Executor, J, T
from shuffledp.common.task.dummies import Drawn
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.results import result_from_bytes, result_to_wire
from shuffledp.shuffler.permutation import permute
from shuffledp.shuffler.shuffle_job import PERMUTED, ShuffleJob
from shuffledp.user_agent.contribution import Contributor, PreparedSubmission
from shuffledp.user_agent.device_store import DeviceStore, InclusionState, SavedSubmission

_DEPLOYED: Final = Ports()
_WRONG_DEVICES: Final = 5
"""One device in this many answers with another value."""
_OVERSTATED: Final = 100
"""Factor on the users who add dummies: ε falls about with the square root of their number, so it is
stated as a tenth, far below what the attack among few users gains."""


def _understate(coalition: Coalition, parameters: PrivacyParameters) -> Guarantee:
    claimed = guarantees.local_guarantee(coalition, parameters)
    return replace(claimed, epsilon=min(claimed.epsilon / 4, 5.0))


def _claims_grow(subject: AuditSubject) -> bool:
    """Return whether the claims are larger with colluders."""
    if subject.parameters.reduction is None:
        return False
    claim, n_users = guarantees.analyzer_guarantee, subject.n_users
    alone, together = (claim(subject.parameters, n_users, left) for left in (1, n_users))
    return alone.epsilon > together.epsilon


UNDERSTATED: Final = Weakness(
    "The task states a quarter of its local epsilon, at most 5.", local_guarantee=_understate
)
COLLUDERS_COUNTED: Final = Weakness(
    "The claims count colluding users as honest.",
    applies=_claims_grow,
    analyzer_guarantee=lambda parameters, n, _: guarantees.analyzer_guarantee(parameters, n, n),
)
SKIPPERS_COUNTED: Final = Weakness(
    "The claims count skipped dummies and a hundred times the users.",
    applies=lambda subject: bool(proven_epsilon(subject.parameters, GAME_USERS, 1)),
    skippers_guarantee=lambda parameters, n, _: guarantees.skippers_guarantee(
        parameters, _OVERSTATED * n, _OVERSTATED * n
    ),
)
ROUNDS_NOT_COUNTED: Final = Weakness(
    "The claims count one round only.",
    applies=lambda subject: math.isfinite(subject.task.local_epsilon),
    local_guarantee=lambda coalition, parameters: guarantees.local_guarantee(
        coalition, replace(parameters, rounds=1)
    ),
    analyzer_guarantee=lambda parameters, n, honest: guarantees.analyzer_guarantee(
        replace(parameters, rounds=1), n, honest
    ),
)
REPORT_LOST: Final = Weakness(
    "The shuffler loses one report of each batch.",
    permute=lambda reports, rng: permute(reports, rng)[:-1],
)
NOT_BLINDED: Final = Weakness(
    "Devices do not blind their requests for tokens.",
    draw_token=lambda *arguments: replace(PendingToken.draw(*arguments), r=2),
)
DIGEST_WITHOUT_N_MIN: Final = Weakness(
    "The task's digest does not cover n_min.",
    task_bytes=lambda task: replace(task, n_min=2).to_bytes(),
)
SAME_SEED: Final = Weakness(
    "Devices start their generator from the same seed each time.",
    start_generator=lambda _: np.random.default_rng(1),
)


class _SeedReuser(Contributor):
    """A contributor that, where reports have seeds, also is a mechanism that copies the last."""

    def __init__(self, task: Task, digest: TaskDigest) -> None:
        super().__init__(task, digest)
        self._deployed: Any = self._mechanism
        names = self._mechanism.report_dtype.names or ()
        self._copies = "seed" in names and task.dummies.maximum > 0
        if self._copies:
            self._mechanism = cast("Randomizer", self)

    def prepare(self, value: Value, rng: Generator) -> PreparedSubmission:
        return super().prepare(value, rng if self._copies else np.random.default_rng(1))

    def randomize(self, values: Items, rng: Generator) -> Reports:
        reports: Reports = self._deployed.randomize(values, rng)
        self._seed = reports["seed"]
        return reports

    def dummies(self, count: int, rng: Generator) -> Reports:
        dummies: Reports = self._deployed.dummies(count, rng)
        dummies["seed"] = self._seed
        return dummies


SEED_REUSED: Final = Weakness(
    "Devices copy their report's seed to dummies or, without these, restart their generator.",
    contributor=_SeedReuser,
)
NOISE_ALONE: Final = Weakness(
    "Reports carry noise alone, so that the attack cannot read them.",
    randomize=lambda mechanism, values, rng: mechanism.dummies(len(values), rng),
)
CUT_ONCE: Final = Weakness(
    "The shuffler cuts the batch once instead of shuffling it.",
    permute=lambda reports, rng: np.roll(reports, int(rng.integers(len(reports) + 1)), axis=0),
)


def _draw_wrong(family: Family[Any], value: Value, n: int, rng: Generator) -> Reports:
    other = next(held for pair in family.worst_values for held in pair if held != value)
    wrong = n // _WRONG_DEVICES
    drawn = [family.draw(value, n - wrong, rng), family.draw(other, wrong, rng)]
    return rng.permutation(np.concatenate(drawn))


def _leave_out_one(task: Task, mechanism: Mechanism, n: int, rng: Generator) -> Drawn:
    numbers, dummies = task.dummies.draw(mechanism, n, rng)
    first = (np.cumsum(numbers) - numbers)[numbers > 0]
    return np.maximum(numbers - 1, 0), np.delete(dummies, first)


WRONG_VALUES: Final = Weakness(
    "One device in five answers with a value other than its user's.", draw_reports=_draw_wrong
)
DUMMY_LEFT_OUT: Final = Weakness(
    "Devices and the shuffler leave out one dummy.",
    draw_numbers=lambda *given: np.maximum(_DEPLOYED.draw_numbers(*given) - 1, 0),
    draw_dummies=_leave_out_one,
    draw_item_dummies=lambda *given: np.maximum(_DEPLOYED.draw_item_dummies(*given) - 1, 0),
)
PERMUTES_ONLY: Final = Weakness(
    "The honest one of two shufflers adds no dummies.", shuffling=permuting
)
NOISE_AFTER_ALL: Final = Weakness("Shufflers that only permute add dummies.", permuting=nullcontext)


class _RepeatKeeper(InlineExecutor):
    async def run(self, *arguments: Any) -> list[Any]:  # noqa: ANN401  # as deployed
        """Keep all rows where repeated ones are dropped."""
        inclusion_proof.distinct_rows = np.asarray  # type: ignore[assignment]
        try:
            return await super().run(*arguments)
        finally:
            inclusion_proof.distinct_rows = distinct_rows


async def _set_back(party: Any, number: int) -> None:  # noqa: ANN401  # a shuffler
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


REPEATS_KEPT: Final = Weakness(
    "The second shuffler does not drop repeated layers and reports.",
    shuffler_executor=lambda _: _RepeatKeeper(),
)
SET_BACK: Final = Weakness(
    "The honest shuffler's disk, keys and marks included, is set back before each delivery.",
    before_delivery=_set_back,
)
UNBOUNDED_TREE: Final = Weakness("Devices accept a tree of any size.", device_store=_TrustingStore)
ORDER_KEPT: Final = Weakness(
    "The shuffler delivers reports in arrival order.", shuffler_executor=_OrderKeeper
)
COUNTED_TWICE: Final = Weakness(
    "The analyzer counts every report of a fake user twice.",
    tally=lambda mechanism, reports: mechanism.tally(np.concatenate([reports, reports])),
)
ANY_LENGTH: Final = Weakness(
    "The shuffler does not count the reports of a submission.", check_length=lambda *_: None
)


class _DroppingShuffler(DishonestShuffler):
    async def deliver(self, tampering: Tampering) -> None:
        await super().deliver(lambda own, users: tampering(own, users[1:]))


class _UncheckedRun(InProcessRun):
    async def plant(self, count: int) -> None:
        """Plant nothing."""

    async def inclusions(self, n_users: int) -> list[InclusionState]:
        return [InclusionState.UNCHECKED] * n_users


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


class _SilentRun(InProcessRun):
    async def deliver(self, manifest: BatchManifest, reports: list[bytes]) -> None:
        with suppress(WireError, ConflictError):
            await super().deliver(manifest, reports)


USER_DROPPED: Final = Weakness(
    "The shuffler drops one submission.",
    parties=partial(InProcessRun, shuffler_type=_DroppingShuffler),
)
NO_DETECTION: Final = Weakness(
    "No device checks that it was counted, and the analyzer knows no sentinel.",
    parties=_UncheckedRun,
    check_sentinels=lambda *_: None,
)
COPIES_ACCEPTED: Final = Weakness(
    "The analyzer accepts copies and does not report them.",
    parties=partial(InProcessRun, analyzer_type=_ForgetfulAnalyzer),
)
NO_REFUSAL: Final = Weakness(
    "The analyzer reports no error when it refuses a batch.", parties=_SilentRun
)
