"""Arrays of 16-byte values as parameters of statements."""

from typing import Final

import numpy as np
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_BYTES: Final = 16
_UUID_OID: Final = 2950
_UUIDS_OID: Final = 2951
_ELEMENT: Final = np.dtype([("length", ">i4"), ("value", f"V{_BYTES}")])


class Uuids(bytes):
    """Values of 16 bytes each, for a parameter of type uuid[]."""

    __slots__ = ()


class _UuidsDumper(Dumper):
    """PostgreSQL's binary array, without an object of Python for each value."""

    format = Format.BINARY
    oid = _UUIDS_OID

    def dump(self, obj: Uuids) -> Buffer:
        elements = np.empty(len(obj) // _BYTES, dtype=_ELEMENT)
        elements["length"] = _BYTES
        elements["value"] = np.frombuffer(obj, dtype=f"V{_BYTES}")
        header = np.array([1, 0, _UUID_OID, len(elements), 1], dtype=">i4")
        return header.tobytes() + elements.tobytes()


def accept_uuids(connection: Connection) -> None:
    """Let a connection take Uuids as parameters."""
    connection.adapters.register_dumper(Uuids, _UuidsDumper)
