"""Faults of what lies on disks: orders, keys and reports that are kept, or kept carelessly."""

import hashlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import numpy as np

import analyzer.intake
import analyzer.storage.store
import common.runtime.database
from analyzer.storage.ledger import charge
from analyzer.storage.store import Store
from common.crypto.hpke_pool import in_order
from common.messages.submission import Submission, unpack
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.permutation import permute
from shuffler.storage.batch_key import BatchKey
from shuffler.storage.spool import Spool

_CONSTANT: Final = b"no-nonce-yet"
_OWNER_ONLY: Final = 0o600


def _beside(owner: type, noted: list[Path]) -> AbstractContextManager[None]:
    """Note the folder of the database that the owner opens."""
    honest: Any = vars(owner)["__init__"]

    def other(self: Any, path: Path, *arguments: Any, **more: Any) -> None:
        noted.append(path.parent)
        honest(self, path, *arguments, **more)

    return planting.attribute(owner, "__init__", other)


def order_kept() -> AbstractContextManager[None]:
    """Plant a shuffler that keeps each batch's order in a file."""
    folders, count = list[Path](), itertools.count()

    def other(reports: Any, rng: np.random.Generator) -> Any:
        order = rng.permutation(len(reports))
        np.save(folders[-1] / f"order-{next(count)}.npy", order)
        return reports[order]

    return planting.both(_beside(Spool, folders), planting.function(permute, other))


def key_from_name(self: StateDirectory, name: str, make: Callable[[], bytes]) -> bytes:
    """Make the key of a batch of the batch's name, which everybody knows; others as they were."""
    if name.startswith("batch-"):
        return _SECRET(self, name, lambda: hashlib.sha256(name.encode()).digest())
    return _SECRET(self, name, make)


def unsealed(self: StateDirectory, name: str, make: Callable[[], bytes]) -> bytes:
    """Keep a secret in plain."""
    raw = _SECRET(self, name, make)
    (self.path / name).unlink()
    (self.path / name).write_bytes(raw)
    (self.path / name).chmod(_OWNER_ONLY)
    return raw


_IN_ORDER: Final[Any] = in_order
_SECRET: Final[Callable[[StateDirectory, str, Callable[[], bytes]], bytes]] = StateDirectory.secret


def batch_key_from_name() -> AbstractContextManager[None]:
    """Plant a shuffler that makes a batch's key of its name."""
    return planting.attribute(StateDirectory, "secret", key_from_name)


def keys_unsealed() -> AbstractContextManager[None]:
    """Plant parties that keep their keys in plain."""
    return planting.attribute(StateDirectory, "secret", unsealed)


def constant_nonce() -> AbstractContextManager[None]:
    """Plant a shuffler that seals all rows of a batch under one nonce."""

    def other(self: Any, row: bytes, place: bytes = b"") -> bytes:
        sealed: bytes = self._aead.encrypt(_CONSTANT, row, place)
        return _CONSTANT + sealed

    return planting.attribute(BatchKey, "seal", other)


def arrivals_kept() -> AbstractContextManager[None]:
    """Plant a shuffler that keeps when each sealed report came, by its hash."""
    folders = list[Path]()

    def other(plaintext: bytes, task: Task) -> Submission:
        submission, size = unpack(plaintext, task), task.sealed_report_bytes
        for folder in folders[-1:]:  # none where the audit opens what it has recorded
            with (folder / "arrivals.log").open("a", encoding="ascii") as file:
                for start in range(0, len(submission.sealed_reports), size):
                    report = submission.sealed_reports[start : start + size]
                    file.write(f"{time.time()} {hashlib.sha256(report).hexdigest()}\n")
        return submission

    return planting.both(_beside(Spool, folders), planting.function(unpack, other))


def keys_not_overwritten() -> AbstractContextManager[None]:
    """Plant parties that delete keys, and leave what was in their files on the disk."""
    return planting.attribute(
        StateDirectory, "destroy", lambda self, name: (self.path / name).unlink(missing_ok=True)
    )


def keys_truncated() -> AbstractContextManager[None]:
    """Plant parties that empty the file of a key instead of overwriting it."""

    def destroy(self: StateDirectory, name: str) -> None:
        path = self.path / name
        if path.exists():
            path.write_bytes(b"")
            path.unlink()

    return planting.attribute(StateDirectory, "destroy", destroy)


def careless_databases() -> AbstractContextManager[None]:
    """Plant databases that leave what was deleted in their free pages."""
    honest: Any = vars(common.runtime.database)["_prepare"]

    def other(connection: sqlite3.Connection, path: Path, schema: str) -> None:
        honest(connection, path, schema)
        connection.execute("PRAGMA secure_delete=OFF")

    return planting.attribute(common.runtime.database, "_prepare", other)


def staged_reports_kept() -> AbstractContextManager[None]:
    """Plant an analyzer that keeps what was staged of a batch when its result is released."""

    def other(
        connection: sqlite3.Connection, manifest: Any, cells: bytes, result: bytes, cost: Any
    ) -> None:
        row = (manifest.task_digest, cells, result)
        connection.execute("INSERT INTO results VALUES (?, ?, ?)", row)
        charge(connection, manifest, cost)

    return planting.attribute(analyzer.storage.store, "_release", other)


def opened_reports_kept() -> AbstractContextManager[None]:
    """Plant an analyzer that keeps opened reports in a file."""
    folders, honest = list[Path](), _IN_ORDER

    def other(calls: Iterator[Any], *, ahead: int) -> Iterator[Any]:
        for opened in honest(calls, ahead=ahead):
            with (folders[-1] / "plain.bin").open("ab") as file:
                file.write(opened.plaintexts)
            yield opened

    return planting.both(
        _beside(Store, folders), planting.attribute(analyzer.intake, "in_order", other)
    )


DISKS: Final = (
    Fault(
        name="order-kept",
        says="the shuffler keeps the order of each batch in a file",
        scenario="services",
        check="no file of the shuffler is of an unknown kind",
        plant=order_kept,
    ),
    Fault(
        name="batch-key-from-name",
        says="the key of a batch is made of its public name",
        scenario="services",
        check="the key of every batch is drawn from the operating system",
        plant=batch_key_from_name,
    ),
    Fault(
        name="constant-nonce",
        says="all rows of a batch are sealed under one nonce",
        scenario="services",
        check="no two rows of a batch are sealed under one nonce",
        plant=constant_nonce,
    ),
    Fault(
        name="arrivals-kept",
        says="the shuffler keeps the time and the hash of every report that comes",
        scenario="services",
        check="no hash of a report lies open on the disk",
        plant=arrivals_kept,
    ),
    Fault(
        name="keys-unsealed",
        says="keys lie in plain in the directories of their parties",
        scenario="services",
        check="every key of the shuffler lies sealed",
        plant=keys_unsealed,
    ),
    Fault(
        name="keys-not-overwritten",
        says="a key's file is deleted, and its place on the disk is left as it was",
        scenario="services",
        check="overwritten before its file is deleted",
        plant=keys_not_overwritten,
    ),
    Fault(
        name="keys-truncated",
        says="a key's file is emptied, and nothing is written over what it held",
        scenario="services",
        check="overwritten before its file is deleted",
        plant=keys_truncated,
    ),
    Fault(
        name="careless-databases",
        says="what is deleted stays in free pages of the databases",
        scenario="services",
        check="what is deleted from spool.sqlite is overwritten",
        plant=careless_databases,
    ),
    Fault(
        name="staged-reports-kept",
        says="the analyzer keeps the sealed reports of a batch that was released",
        scenario="services",
        check="no report stays staged once its result is released",
        plant=staged_reports_kept,
    ),
    Fault(
        name="opened-reports-kept",
        says="the analyzer keeps opened reports in a file",
        scenario="services",
        check="no opened report lies on the analyzer's disk",
        plant=opened_reports_kept,
    ),
)
