"""Faults that hide where little looks: names, row numbers, caches, clocks, sums of many draws."""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import shuffler.storage.spool
from common.accounting.guarantees import Terms, claimed_release
from common.accounting.releases import Release
from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, SealContext
from common.crypto.hpke_pool import seal_each
from common.crypto.key_ring import KeyEntry, KeyRing, Schedule
from common.crypto.signing import SigningIdentity
from common.crypto.suites import DEFAULT_SUITE
from common.task.shuffler_spec import ShufflerSpec
from common.task.task import SUBMISSION_ID_BYTES, Task
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.dummies import draw_item_dummies, draw_kept
from shuffler.storage import submissions as submission_table
from shuffler.storage.batch_key import BatchKey
from shuffler.storage.group import Group, form_group, merge_small, open_group
from shuffler.storage.spool import Spool

_FEW: Final = 64
"""Items of a small domain."""
_LONGER: Final = 1000
_CACHED: Final = 2**16


def _folder_at_arrival(inside: str, name: Callable[[Group], str]) -> AbstractContextManager[None]:
    """Make an empty folder for each group that comes, and remove none."""
    opened, append = Spool.__init__, Spool.append
    folders = list[Path]()

    def init(self: Spool, path: Path, *arguments: Any) -> None:
        folders.append(path.with_name(inside))
        opened(self, path, *arguments)

    async def other(self: Spool, arrival: Any) -> Any:
        for group in arrival.groups:
            (folders[-1] / name(group)).mkdir(parents=True, exist_ok=True)
        return await append(self, arrival)

    return planting.both(
        planting.attribute(Spool, "__init__", init), planting.attribute(Spool, "append", other)
    )


def folder_for_each_arrival() -> AbstractContextManager[None]:
    """Plant a shuffler that calls a folder by the time and the hash of what comes."""
    return _folder_at_arrival("groups", lambda group: f"{time.time_ns()}-{group.tags[:8].hex()}")


def folder_of_no_batch() -> AbstractContextManager[None]:
    """Plant one that calls it by the time, as if it were a batch's."""
    return _folder_at_arrival("batches", lambda _: f"{time.time_ns():032x}")


def rows_numbered() -> AbstractContextManager[None]:
    """Plant a table of submissions whose rows SQLite numbers as they come."""
    schema: str = vars(shuffler.storage.spool)["_SCHEMA"]
    begin = schema.index("CREATE TABLE IF NOT EXISTS submission_groups")
    other = schema[:begin] + schema[begin:].replace("WITHOUT ROWID", "", 1)
    return planting.attribute(shuffler.storage.spool, "_SCHEMA", other)


def _laid(groups: Sequence[Group], reports: bytes, key: BatchKey) -> Group:
    """Lay groups together, one after the other."""
    number = groups[0].number
    sealed = key.seal(reports, b"reports" + number.to_bytes(8))
    return Group(number=number, tags=b"".join(group.tags for group in groups), sealed=sealed)


def bulk_order_kept() -> AbstractContextManager[None]:
    """Plant a shuffler that stores what comes in one call as it came."""

    def other(submissions: Sequence[bytes], key: BatchKey) -> tuple[Group, list[int]]:
        if not submissions:
            return form_group(submissions, key)
        alone = [form_group([one], key)[0] for one in submissions]
        reports = b"".join(one[SUBMISSION_ID_BYTES:] for one in submissions)
        return _laid(alone, reports, key), list(range(len(submissions)))

    return planting.function(form_group, other)


def merged_in_order() -> AbstractContextManager[None]:
    """Plant one that lays together what came one by one, in the order in which it came."""

    def other(groups: Sequence[Group], key: BatchKey) -> list[Group]:
        if len(groups) < 2 or len(merge_small(groups, key)) > 1:  # noqa: PLR2004  # nothing to lay
            return merge_small(groups, key)
        opened = (open_group(group.number, group.sealed, key) for group in groups)
        return [_laid(groups, b"".join(opened), key)]

    return planting.function(merge_small, other)


def stored_in_reverse() -> AbstractContextManager[None]:
    """Plant one that turns around what it stores, which therefore lies by no hash."""
    honest: Any = vars(submission_table)["_new_part"]

    def other(group: Group, outcomes: Any, key: BatchKey) -> Group:
        part: Group = honest(group, outcomes, key)
        if not len(part):
            return part
        reports = open_group(part.number, part.sealed, key)
        tags, size = part.entries()[::-1].tobytes(), len(reports) // len(part)
        turned = (reports[at : at + size] for at in range(len(reports) - size, -1, -size))
        return _laid([dataclasses.replace(part, tags=tags)], b"".join(turned), key)

    return planting.attribute(submission_table, "_new_part", other)


def seals_cached() -> AbstractContextManager[None]:
    """Plant a pool that seals a plaintext once, and gives the same again."""

    @lru_cache(maxsize=_CACHED)
    def once(suite: str, key: bytes, plaintext: bytes, context: SealContext) -> bytes:
        return seal_each(HpkePublicKey(suite, key), plaintext, len(plaintext), context)

    def other(
        key: HpkePublicKey, plaintexts: bytes, plaintext_bytes: int, context: SealContext
    ) -> bytes:
        starts = range(0, len(plaintexts), plaintext_bytes)
        texts = (plaintexts[at : at + plaintext_bytes] for at in starts)
        return b"".join(once(key.suite, key.raw, text, context) for text in texts)

    return planting.function(seal_each, other)


def one_number_for_all_items() -> AbstractContextManager[None]:
    """Plant a shuffler that draws one number for all items of a small domain."""

    def other(spec: ShufflerSpec, domain_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        if domain_size > _FEW:
            return draw_item_dummies(spec, domain_size, rng)
        return np.repeat(draw_item_dummies(spec, 1, rng), domain_size)

    return planting.function(draw_item_dummies, other)


def pairs_of_items() -> AbstractContextManager[None]:
    """Plant one that draws a number for each two neighbours."""

    def other(spec: ShufflerSpec, domain_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.repeat(draw_item_dummies(spec, (domain_size + 1) // 2, rng), 2)[:domain_size]

    return planting.function(draw_item_dummies, other)


def exact_share_kept() -> AbstractContextManager[None]:
    """Plant one that keeps the very share of a batch that it should keep on average."""

    def other(spec: ShufflerSpec, n_reports: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = rng.permutation(n_reports) < round(n_reports * spec.kept)
        return kept

    return planting.function(draw_kept, other)


def nonce_of_place() -> AbstractContextManager[None]:
    """Plant a shuffler whose nonce is a keyed hash of the place."""

    def other(self: Any, row: bytes, place: bytes = b"") -> bytes:
        nonce = hashlib.blake2b(place, key=self.private_bytes(), digest_size=12).digest()
        sealed: bytes = self._aead.encrypt(nonce, row, place)
        return nonce + sealed

    return planting.attribute(BatchKey, "seal", other)


def _by_the_clock() -> bytes:
    return hashlib.sha256(time.time_ns().to_bytes(8)).digest()


def weak_keys() -> AbstractContextManager[None]:
    """Plant encryption keys that follow from the time."""

    def other(cls: type[HpkePrivateKey], suite: str = DEFAULT_SUITE) -> HpkePrivateKey:
        return cls(suite, _by_the_clock())

    return planting.attribute(HpkePrivateKey, "generate", classmethod(other))


def weak_identities() -> AbstractContextManager[None]:
    """Plant identities that follow from the time."""
    return planting.attribute(
        SigningIdentity, "generate", classmethod(lambda cls: cls(_by_the_clock()))
    )


def keys_for_ever() -> AbstractContextManager[None]:
    """Plant a ring that keeps expired keys a thousand times as long."""
    honest: Callable[[KeyRing, float, Schedule], list[KeyEntry]] = KeyRing.past_keeping

    def other(self: KeyRing, now: float, schedule: Schedule) -> list[KeyEntry]:
        return honest(self, now, dataclasses.replace(schedule, keep=_LONGER * schedule.keep))

    return planting.attribute(KeyRing, "past_keeping", other)


def all_users_counted_on() -> AbstractContextManager[None]:
    """Plant an accountant that counts on every user, whatever share a task assumes."""

    def other(task: Task, n_users: int, n_refused: int = 0) -> Release:
        terms = dataclasses.replace(Terms.of(task), assumed_honest_fraction=1.0)
        return terms.release(terms.crowd(n_users, n_refused))

    return planting.function(claimed_release, other)


HIDDEN: Final = (
    Fault(
        name="folder-for-each-arrival",
        says="the shuffler makes an empty folder for what comes, called by its time and hash",
        scenario="services",
        check="no file of the shuffler is of an unknown kind",
        plant=folder_for_each_arrival,
    ),
    Fault(
        name="folder-of-no-batch",
        says="the shuffler makes empty folders called by times, where those of batches lie",
        scenario="services",
        check="no file of the shuffler is called by the id of no batch",
        plant=folder_of_no_batch,
    ),
    Fault(
        name="rows-numbered",
        says="the table of submissions numbers its rows in the order of arrival",
        scenario="services",
        check="no column of the shuffler is unknown",
        plant=rows_numbered,
    ),
    Fault(
        name="bulk-order-kept",
        says="what comes in one bulk call is stored as it came",
        scenario="stores",
        check="submissions of one bulk call stand in the order of their hashes",
        plant=bulk_order_kept,
    ),
    Fault(
        name="merged-in-order",
        says="what came one by one is laid together as it came",
        scenario="stores",
        check="submissions laid together stand in the order of their hashes",
        plant=merged_in_order,
    ),
    Fault(
        name="stored-in-reverse",
        says="what came together is stored in the reverse of the order of its hashes",
        scenario="services",
        check="submissions that lie together lie in the order of their hashes",
        plant=stored_in_reverse,
    ),
    Fault(
        name="shuffler-seals-cached",
        says="equal reports that the shuffler adds are sealed once",
        scenario="mixing",
        check="no ciphertext comes twice",
        plant=seals_cached,
    ),
    Fault(
        name="seals-cached",
        says="equal plaintexts are sealed once",
        scenario="secrets",
        check="equal plaintexts are sealed apart",
        plant=seals_cached,
    ),
    Fault(
        name="one-number-for-all-items",
        says="the shuffler draws one number of dummies for all items of a small domain",
        scenario="draws",
        check="dummies of all items together",
        plant=one_number_for_all_items,
    ),
    Fault(
        name="pairs-of-items",
        says="the shuffler draws one number of dummies for each two neighbours",
        scenario="draws",
        check="dummies of two neighbours together",
        plant=pairs_of_items,
    ),
    Fault(
        name="exact-share-kept",
        says="the shuffler keeps exactly as many reports as it should on average",
        scenario="draws",
        check="how many of a small batch are kept",
        plant=exact_share_kept,
    ),
    Fault(
        name="nonce-of-place",
        says="a row's nonce is a keyed hash of its place",
        scenario="secrets",
        check="a row has another nonce each time it is sealed",
        plant=nonce_of_place,
    ),
    Fault(
        name="weak-keys",
        says="encryption keys follow from the time",
        scenario="secrets",
        check="follows from no clock and no seed",
        plant=weak_keys,
    ),
    Fault(
        name="weak-keys-in-use",
        says="the services' encryption keys follow from the time",
        scenario="services",
        check="every encryption key is drawn from the operating system",
        plant=weak_keys,
    ),
    Fault(
        name="weak-identities",
        says="signing identities follow from the time",
        scenario="secrets",
        check="a signing identity follows from no clock and no seed",
        plant=weak_identities,
    ),
    Fault(
        name="keys-for-ever",
        says="expired keys are kept a thousand times as long",
        scenario="secrets",
        check="an expired key is destroyed once it has been kept so long",
        plant=keys_for_ever,
    ),
    Fault(
        name="all-users-counted-on",
        says="a task's claim counts on all of its users, whatever share is assumed honest",
        scenario="accountant",
        check="a task claims no less than holds of the users whom it counts on",
        plant=all_users_counted_on,
    ),
    Fault(
        name="all-users-confirmed",
        says="a device confirms a claim that counts on all users",
        scenario="accountant",
        check="a device answers no task whose claim holds if all are honest alone",
        plant=all_users_counted_on,
    ),
)
