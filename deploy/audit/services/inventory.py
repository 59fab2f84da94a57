"""Files, folders, tables and columns that the parties are known to keep: all else is seen."""

import re
from collections.abc import Collection, Iterator
from typing import Final

from deploy.audit.services.look import DIRECTORY, Look
from deploy.audit.services.tape import Party

_ID: Final = "[0-9a-f]{32}"
_DIGEST: Final = "[0-9a-f]{64}"
_SERVED: Final = ("address", "metrics_address", "lock")
_KEYS: Final = (
    *("identity\\.key", "identity\\.pub", f"hpke-{_DIGEST}\\.key", "keys\\.json"),
    "operator\\.token",
)
_UNFINISHED: Final = re.compile(r"(.*/)?\.[^/]+\.[0-9]+")
"""A file that is being written, and appears under its name once it is whole."""

_FILES: Final[dict[Party, re.Pattern[str]]] = {
    "analyzer": re.compile("|".join((*_SERVED, *_KEYS, "analyzer\\.sqlite(-wal|-shm)?"))),
    "shuffler": re.compile(
        "|".join(
            (
                *_SERVED,
                *_KEYS,
                "envelope(-[0-9a-z-]+)?\\.pub",
                "spool\\.sqlite(-wal|-shm)?",
                f"batch-{_ID}\\.key",
                f"batches/{_ID}/(permuted|permuted\\.part|bucket-[0-9]+)",
                f"inclusion/{_DIGEST}\\.(leaves|commitment)",
            )
        )
    ),
    "user_agent": re.compile(
        "|".join((*_SERVED, "permanent\\.key", "budget\\.sqlite(-wal|-shm)?"))
    ),
}

_FOLDERS: Final[dict[Party, re.Pattern[str]]] = {
    "analyzer": re.compile("(?!)"),
    "shuffler": re.compile(f"batches/({_ID}/)?|inclusion/"),
    "user_agent": re.compile("(?!)"),
}
_OF_A_BATCH: Final = re.compile(f"batch(?:es/|-)({_ID})")

_COLUMNS: Final[dict[Party, dict[str, str]]] = {
    "analyzer": {
        "tasks": "task_digest task signature",
        "task_lines": "task_digest protocol domain_size population n_min target_size deadline",
        "batches": "task_digest batch_id n_users n_reports staged failure",
        "chunks": "batch_id position sealed_reports",
        "staged_hashes": "batch_id staged_hash",
        "results": "task_digest cells result",
        "commitments": "task_digest commitment",
        "ledger": "entry task_digest batch_id population n_users n_refused coalition epsilon delta "
        "theorem composed_epsilon previous_hash entry_hash rowid",
        "sentinels": "task_digest position leaves acknowledged",
    },
    "shuffler": {
        "batches": "batch_id task_digest task signature state n_users n_reports shuffle_seconds",
        "submission_groups": "batch_id number sealed_tags sealed",
        "used_tokens": "batch_id token_tag",
        "refusals": "batch_id outcome n",
    },
    "user_agent": {
        "submissions": "person task_digest envelope local_epsilon state central_epsilon delta",
        "evidence": "person task_digest leaves deadline inclusion receipt receipt_verified",
        "lasting_secret": "fingerprint",
    },
}
"""A new column belongs here once somebody has thought about what it reveals."""


def unknown_files(seen: Look) -> list[str]:
    """List what lies in a party's directory and is nothing that it is known to keep there."""
    files = [
        name
        for name in seen.files
        if not _FILES[seen.party].fullmatch(name) and not _UNFINISHED.fullmatch(name)
    ]
    others = [name for name in seen.others if not _FOLDERS[seen.party].fullmatch(name)]
    return [*files, *(name for name in others if name not in files)]


def unknown_batches(seen: Look, batches: Collection[str]) -> list[str]:
    """List files and folders that are called by an id that no batch has, in hexadecimal."""
    return [
        name
        for name in (*seen.files, *seen.others)
        if (match := _OF_A_BATCH.match(name)) and match[1] not in batches
    ]


def unknown_columns(party: Party, found: dict[str, tuple[str, ...]]) -> list[str]:
    """List tables and columns, as table.column, that a party's databases are not known to have."""
    known = _COLUMNS[party]
    return [
        f"{table}.{column}"
        for table, columns in found.items()
        for column in columns
        if column not in known.get(table, "").split()
    ]


def missing_tables(party: Party, found: dict[str, tuple[str, ...]]) -> set[str]:
    """List known tables that were not found: what is not read is not shown to be harmless."""
    return set(_COLUMNS[party]) - set(found)


def open_to_others(seen: Look) -> Iterator[str]:
    """List what others than its owner may read, and should not: keys, tokens, the directory."""
    for name, mode in seen.modes.items():
        closed = name == DIRECTORY or name.endswith((".key", ".token")) or ".sqlite" in name
        if closed and mode & 0o077:
            yield name
