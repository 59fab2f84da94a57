"""A PostgreSQL server for the stores' tests."""

from tests.support.postgres import postgres

__all__ = ["postgres"]
