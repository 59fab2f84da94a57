"""Tables of cases that are checked in one test."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

_PARAM: Final = type(pytest.param())


def table(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Any], Any]:
    """
    Run a test for each row of a table like `pytest.mark.parametrize`, but as one test.

    For rows that take less time than the start of a test. Fixtures are shared, and the error of a
    row that fails names it.
    """
    columns = tuple(names.replace(" ", "").split(",")) if isinstance(names, str) else names
    cases = [row.values if isinstance(row, _PARAM) else row for row in rows]

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def together(**fixtures: Any) -> None:
            for row in cases:
                with _named(row):
                    test(**_filled(row), **fixtures)

        @functools.wraps(test)
        async def awaited(**fixtures: Any) -> None:
            for row in cases:
                with _named(row):
                    await test(**_filled(row), **fixtures)

        def _filled(row: Any) -> dict[str, Any]:
            return dict(zip(columns, row if len(columns) > 1 else [row], strict=True))

        found: Any = awaited if inspect.iscoroutinefunction(test) else together
        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in columns]
        found.__signature__ = signature.replace(parameters=left)
        return found  # type: ignore[no-any-return]

    assert cases
    return decorated


@contextmanager
def _named(row: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row {row!r}")
        raise
