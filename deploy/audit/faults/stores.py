"""Faults of what the shuffler stores, draws and begins: parts of it lost, mixed up or unchecked."""

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shuffler.dummies
import shuffler.states
import shuffler.storage.batch_files
import shuffler.storage.group
import shuffler.storage.spool
from common.crypto.hpke import KeyId
from common.crypto.hpke_pool import Opened
from common.crypto.signing import SignedTask
from common.crypto.tokens import serial_of
from common.errors import DamagedStorageError, ShuffleDpError
from common.errors import ProofError as SignatureError
from common.mechanisms.base import Mechanism, Reports
from common.messages.batch import BatchState
from common.messages.submission import Outcome
from common.runtime import logs
from common.sorted_index import SortedIndex
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from common.task_digest import TaskDigest
from deploy.audit.faults import planting
from shuffler.active_batches import PastRound, Round, Rounds
from shuffler.admission import TokenCheck
from shuffler.collection import Collection
from shuffler.inclusion import Sent
from shuffler.shuffle import Mixed, Mixing
from shuffler.states import Event, Terms
from shuffler.storage.batch_files import BatchFiles
from shuffler.storage.batch_key import BatchKey
from shuffler.storage.group import Group, form_from_opened, form_group
from shuffler.storage.spool import StoredBatch
from user_agent.contribution import draw_dummies

_Planted = AbstractContextManager[None]


def wrong_part_stored() -> _Planted:
    """Plant groups that keep other reports than those beside the tags that they keep."""
    honest = Group.only

    def other(self: Group, kept: NDArray[np.bool_], key: BatchKey) -> Group:
        return replace(honest(self, kept, key), sealed=honest(self, kept[::-1], key).sealed)

    return planting.attribute(Group, "only", other)


def places_of_readable() -> _Planted:
    """Plant outcomes that are told to those who come before what does not open."""

    def other(opened: Opened, raw_key: bytes) -> tuple[Group, list[int]]:
        size = len(opened.plaintexts) // max(1, len(opened.readable))
        texts = [
            opened.plaintexts[place * size : (place + 1) * size]
            for place, good in enumerate(opened.readable)
            if good
        ]
        return form_group(texts, BatchKey(raw_key))

    return planting.function(form_from_opened, other)


def one_run_searched() -> _Planted:
    """Plant an index that looks into what came last."""
    honest = SortedIndex.find

    def other(self: SortedIndex, keys: Any) -> Any:
        self._sort_in()
        runs, self._runs = self._runs, self._runs[-1:]
        try:
            return honest(self, keys)
        finally:
            self._runs = runs

    return planting.attribute(SortedIndex, "find", other)


def bits_once() -> _Planted:
    """Plant coins that are thrown for the first items and count for all others as well."""
    honest = shuffler.dummies._heads

    def other(coins: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        words = -(-coins // 64)
        together = max(1, shuffler.dummies._WORDS_AT_ONCE // words)
        first = honest(coins, min(count, together), rng)
        return np.resize(first, count)

    return planting.function(honest, other)


def each_item_cut() -> _Planted:
    """Plant dummies of which the last are left off where there would be too many."""

    def other(mechanism: Mechanism, dummies: DummySpec, rng: np.random.Generator) -> Reports:
        if dummies.uniform:
            return draw_dummies(mechanism, dummies, rng)
        named = rng.integers(0, 2**32, size=dummies.trials) < dummies.extra_weight
        return mechanism.randomize(np.flatnonzero(named)[: dummies.most], rng)

    return planting.function(draw_dummies, other)


def flanks_clamped() -> _Planted:
    """Plant geometric numbers of which all that lies beyond the most becomes the most."""
    honest = shuffler.dummies._flanked

    def other(spec: ShufflerSpec, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.minimum(honest(replace(spec, most=64 * spec.most), count, rng), spec.most)

    return planting.function(honest, other)


def seconds_of_all() -> _Planted:
    """Plant a time of shuffling that is the time of everything."""
    honest = Mixing.mix

    def other(self: Mixing, groups: Iterable[bytes]) -> Mixed:
        started = time.perf_counter()
        mixed = honest(self, groups)
        return replace(mixed, seconds=time.perf_counter() - started)

    return planting.attribute(Mixing, "mix", other)


def expired_in_a_race() -> _Planted:
    """Plant a spool that drops a batch to which users came since it was read."""
    return planting.function(
        shuffler.storage.spool._set_last_state, shuffler.storage.spool._set_state
    )


def spool_task_unchecked() -> _Planted:
    """Plant a spool that believes the task on its disk."""
    honest: Any = shuffler.storage.spool._stored

    def other(row: Any) -> StoredBatch:
        batch_id, _, task, *rest = row
        signed = SignedTask(task_bytes=task, signature=rest[0])
        stored: StoredBatch = honest((batch_id, signed.digest(), task, *rest))
        return stored

    return planting.function(honest, other)


def _in_rounds(**other: Any) -> _Planted:
    """Plant rounds that are begun with something else than they were given."""
    honest = Rounds.__init__

    def begun(self: Rounds, **fields: Any) -> None:
        honest(self, **fields | other)

    return planting.attribute(Rounds, "__init__", begun)


def shuffler_takes_unsigned() -> _Planted:
    """Plant a shuffler that collects for tasks of any signer."""
    return _in_rounds(identity=SimpleNamespace(verify=lambda _signed: None))


def most_dummies_off() -> _Planted:
    """Plant a shuffler that makes as many dummies as a task asks for."""
    return _in_rounds(most_dummies=2**63)


def pinned_digest() -> _Planted:
    """Plant a shuffler that goes on with the task that it was given instead."""
    honest: Any = Rounds._begin

    async def other(self: Rounds, digest: TaskDigest) -> Round | PastRound:
        try:
            found: Round | PastRound = await honest(self, digest)
        except SignatureError:
            given = await self._analyzer.get_task(digest)
            found = await honest(self, given.digest())
        return found

    return planting.attribute(Rounds, "_begin", other)


def needed_forgotten() -> _Planted:
    """Plant rounds that need no key once they have begun."""

    def other(self: Rounds) -> set[KeyId]:
        return set(self._claimed)

    return planting.attribute(Rounds, "needed_keys", other)


def serial_remembered() -> _Planted:
    """Plant a check that takes any signature over a serial number that was valid before."""
    honest: Any = TokenCheck._verified

    def other(self: TokenCheck, tokens: Sequence[bytes]) -> dict[bytes, bool]:
        known = {serial_of(token) for token in self._valid}
        verified: dict[bytes, bool] = honest(self, tokens)
        return {token: valid or serial_of(token) in known for token, valid in verified.items()}

    return planting.attribute(TokenCheck, "_verified", other)


def target_under_minimum() -> _Planted:
    """Plant batches that close at their task's target, however few the operator thinks it."""
    honest: Any = shuffler.states.due

    def other(state: BatchState, n_users: int, terms: Terms, now: float) -> Event | None:
        if state is BatchState.COLLECTING and n_users >= terms.target_size:
            return Event.CLOSE
        event: Event | None = honest(state, n_users, terms, now)
        return event

    return planting.function(honest, other)


def arrived_unchecked() -> _Planted:
    """Plant mixing that does not miss what was lost."""
    honest: Any = Mixing._kept

    def other(self: Mixing, groups: Iterable[bytes]) -> Iterator[Any]:
        came = [*groups]
        expected = self._n_users * self._task.reports_per_user * self._task.sealed_report_bytes
        try:
            yield from honest(self, came)
        except DamagedStorageError:
            if sum(map(len, came)) > expected:
                raise

    return planting.attribute(Mixing, "_kept", other)


def undelivered_count() -> _Planted:
    """Plant deliveries that end where the disk does."""
    honest = Sent.passing

    async def other(self: Sent, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in honest(self, chunks):
                yield chunk
        except DamagedStorageError:
            return

    return planting.attribute(Sent, "passing", other)


def permuted_unflushed() -> _Planted:
    """Plant orders that get their name before they are on the disk."""
    unflushed = SimpleNamespace(fsync=lambda _descriptor: None)
    return planting.attribute(shuffler.storage.batch_files, "os", unflushed)


def group_numbers_short() -> _Planted:
    """Plant groups whose numbers are of few bits."""
    return planting.attribute(shuffler.storage.group, "NUMBER_BITS", 16)


def bucket_leaves_left() -> _Planted:
    """Plant buckets that stay when they have been read."""
    honest = BatchFiles.take

    def other(self: BatchFiles, bucket: int) -> list[bytes]:
        path = self._bucket(bucket)
        kept = path.read_bytes() if path.exists() else b""
        records = honest(self, bucket)
        if kept:
            path.write_bytes(kept)
        return records

    return planting.attribute(BatchFiles, "take", other)


def refusals_logged() -> _Planted:
    """Plant a shuffler that logs each submission that it refuses."""
    honest: Any = Collection.submit

    async def other(
        self: Collection, digest: TaskDigest, envelope: bytes, token: bytes = b""
    ) -> Outcome:
        try:
            outcome: Outcome = await honest(self, digest, envelope, token)
        except ShuffleDpError as error:
            found = await self._rounds.find_or_begin(digest)
            fields = logs.batch_fields(digest, found.batch_id) | {"error": type(error).__name__}
            logs.event("submission not taken", fields)
            raise
        return outcome

    return planting.attribute(Collection, "submit", other)
