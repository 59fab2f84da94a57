"""Custody: where keys come from, how they lie on disks, and what is left of them."""

from typing import Final

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.services.disk import ascending
from deploy.audit.services.inventory import (
    missing_tables,
    open_to_others,
    unknown_batches,
    unknown_columns,
    unknown_files,
)
from deploy.audit.services.record import Record

_DATABASES: Final = {"analyzer.sqlite", "spool.sqlite", "budget.sqlite"}
_FULL: Final = 2
_KEY_BYTES: Final = 32
"""Of a key that lies in a file; sealed, it is longer."""
_WITH_KEYS: Final = {"analyzer", "shuffler"}


def finding(record: Record) -> Finding:
    """Go through the files, tables and keys of all three parties, at every moment."""
    checks = Checks()
    for seen in record.looks:
        party = seen.party.replace("_", " ")
        checks.must(f"no file of the {party} is of an unknown kind", not unknown_files(seen))
        checks.must(
            f"no file of the {party} is called by the id of no batch",
            not unknown_batches(seen, record.names.batches),
        )
        checks.must(f"nobody else may read secrets of the {party}", not [*open_to_others(seen)])
        checks.must(
            f"every key of the {party} lies sealed", all(key for key in seen.secrets.values())
        )
        checks.must(
            f"no key of the {party} is there twice",
            len(set(seen.secrets.values())) == len(seen.secrets),
        )
    with_keys = {seen.party for seen in record.looks if seen.secrets}
    checks.must("keys of shuffler and analyzer were seen", with_keys == _WITH_KEYS)
    for one, columns in record.columns.items():
        party = one.replace("_", " ")
        checks.must(f"every table of the {party} was found", not missing_tables(one, columns))
        checks.must(f"no column of the {party} is unknown", not unknown_columns(one, columns))
    _batch_keys(checks, record)
    _databases(checks, record)
    return checks.finding(
        scenario="services",
        title="Keys and files of the three parties",
        heading="anonymity",
        coalition="whoever takes a disk",
        sentence=(
            "No file, folder, table or column was there that is not known to be kept. Files of "
            "keys were sealed under the state key and closed to others; encryption keys, keys of "
            "batches and state keys came "
            "from the operating system; no two rows of a batch were sealed under one nonce; and "
            "where the keys of finished batches had lain on the disk there are zeros."
        ),
        trials=sum(len(seen.files) for seen in record.looks),
    )


def _batch_keys(checks: Checks, record: Record) -> None:
    """Ask of every key of a batch where it came from, what it sealed, and what is left of it."""
    held = [disk for one in record.collections for disk in (one.disk, one.mixed) if disk]
    keys = {
        name: raw
        for seen in record.looks
        for name, raw in seen.secrets.items()
        if name.startswith("batch-") and raw is not None
    }
    drawn, places = record.watched.drawn, record.watched.at_places
    checks.must("keys of batches were seen", bool(held) and bool(keys))
    checks.must("every batch has a key of its own", len(set(keys.values())) == len(keys))
    used = {*keys.values(), *(disk.key for disk in held)}
    checks.must("the key of every batch is drawn from the operating system", used <= drawn)
    encryption = {
        raw
        for seen in record.looks
        for name, raw in seen.secrets.items()
        if name.startswith("hpke-") and raw is not None
    }
    checks.must(
        "every encryption key is drawn from the operating system",
        bool(encryption) and encryption <= drawn,
    )
    state_keys = {seen.party: seen.state_key for seen in record.looks if seen.secrets}
    checks.must(
        "every state key is drawn from the operating system, for one party",
        set(state_keys.values()) <= drawn and len({*state_keys.values()}) == len(state_keys),
    )
    for disk in held:
        checks.must("rows of a batch were seen", bool(disk.nonces))
        checks.must(
            "submissions that lie together lie in the order of their hashes",
            all(ascending(tags) for tags in disk.tags),
        )
        checks.must(
            "no two rows of a batch are sealed under one nonce",
            len(set(disk.nonces)) == len(disk.nonces),
        )
    checks.must(
        "the places of keys on the disk were read",
        bool(places) and min(record.watched.lengths.values()) >= _KEY_BYTES,
    )
    checks.must(
        "the key of a batch that is over is overwritten before its file is deleted",
        all(content == bytes(record.watched.lengths[name]) for name, content in places.items()),
    )


def _databases(checks: Checks, record: Record) -> None:
    """Look at what the services asked of SQLite, for as long as they ran."""
    settings = record.watched.settings
    checks.must("every database was asked how it writes", {s.name for s in settings} == _DATABASES)
    for one in settings:
        checks.must(
            f"{one.name} is on the disk before anything is acknowledged", one.synchronous >= _FULL
        )
        checks.must(f"what is deleted from {one.name} is overwritten", one.secure_delete == 1)
