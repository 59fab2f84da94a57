"""The versions of a database's schema."""

from dataclasses import dataclass
from typing import Final

from common.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """
    The steps that lead to a program's schema.

    A step is a script of SQL from one version to the next. Steps are additive, so earlier
    versions keep working with a newer database while a service is upgraded.
    """

    steps: tuple[str, ...]
    """A database of version n, 0 if empty, lacks the steps after its first n. The first step may
    meet its own tables, from before versions were recorded."""
    readable_from: int = 1
    """The earliest version of a program that can use this schema."""

    @property
    def version(self) -> int:
        """The program's version."""
        return len(self.steps)

    def check(self, version: int, readable_from: int) -> None:
        """Raise SettingsError if this program is too old for a database of this version."""
        if self.version < readable_from:
            raise SettingsError(
                f"the database's schema is version {version}, readable from {readable_from}; this "
                f"program has {self.version}: upgrade it"
            )


VERSION_TABLE: Final = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL,
    readable_from INTEGER NOT NULL
);
"""
"""One row, in SQLite and PostgreSQL."""
