"""What a disk can do to a process, as errors of ours: full, read-only, failing, damaged."""

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from common.errors import DamagedStorageError, StorageError

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""How the system says that there is no room."""
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_SENTENCES: Final = {
    sqlite3.SQLITE_FULL: "the disk of the state directory is full",
    sqlite3.SQLITE_READONLY: "the state directory is read-only",
    sqlite3.SQLITE_CANTOPEN: "a file of the state directory cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk of the state directory fails",
    sqlite3.SQLITE_PERM: "a file of the state directory may not be read or written",
    sqlite3.SQLITE_BUSY: "a database of the state directory is in use by another process",
    sqlite3.SQLITE_LOCKED: "a database of the state directory is in use by another process",
}
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DAMAGE: Final = "a database of the state directory is damaged"
_NO_TEXT: Final = "Could not decode to UTF-8"
"""What Python says, without a code, of a column of text that is none."""
_PRIMARY: Final = 0xFF
"""SQLite's extended codes carry their primary one in the lowest byte."""


@contextmanager
def storage_failures() -> Generator[None]:
    """
    Say in one sentence what the disk did not do; any other failure passes as it is.

    Raises:
        StorageError: It is full, read-only, or fails.
        DamagedStorageError: It gave back what is no database.
    """
    try:
        yield
    except sqlite3.Error as error:
        # Python's own complaints, of a wrong call, carry no code.
        code = getattr(error, "sqlite_errorcode", -1) & _PRIMARY
        if code in _DAMAGED or str(error).startswith(_NO_TEXT):
            raise DamagedStorageError(_DAMAGE) from error
        if code in _SENTENCES:
            raise StorageError(_SENTENCES[code]) from error
        raise
    except UnicodeDecodeError as error:  # SQLite's complaint, which quotes what is damaged
        raise DamagedStorageError(_DAMAGE) from error
    except OSError as error:
        if error.errno in FULL:
            raise StorageError(_SENTENCES[sqlite3.SQLITE_FULL]) from error
        if error.errno in _READ_ONLY:
            raise StorageError(_SENTENCES[sqlite3.SQLITE_READONLY]) from error
        raise StorageError(_SENTENCES[sqlite3.SQLITE_IOERR]) from error
