"""People's values as Python holds them: lists, arrays, Series, data frames; read as a file is."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any, Final

from shuffledp.common.errors import ArgumentError, ArgumentTypeError
from shuffledp.common.protocols import Kind
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR
from shuffledp.deploy.datasets import files, sources

Values = Collection[Any]
"""A list, tuple, array or Series of texts or numbers, one for each person. Of several numbers or
attributes: rows of them, a data frame, or a dict of columns. Of pairs: dicts."""
_LISTS: Final = (list, tuple, range)
_MISSING: Final = {"", "None", "nan", "NaN", "<NA>", "NaT"}
"""How Python, numpy and pandas write a missing value; pandas' NA cannot even be compared."""


def own_people(values: Any, kind: Kind) -> sources.Dataset:  # noqa: ANN401  # Values, or a mistake
    """
    Return the people who have these values of a kind, as if read from a file.

    Raises ArgumentError or ArgumentTypeError, which names the place of a value that cannot be used.
    """
    column, cell = files.VALUE, _FORMS.get(kind, _cell)
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        if cell is _cell:
            raise ArgumentTypeError(f"values has columns; {kind} data needs one of them")
        names = [*getattr(values, "columns", values)]
        columns = [_listed(f"values[{name!r}]", values[name]) for name in names]
        if len({*map(len, columns)}) > 1:
            raise ArgumentError("values has columns of different lengths")
        column, values = ",".join(map(str, names)), [*zip(*columns, strict=True)]
    rows = _listed("values", values)
    if not rows:
        raise ArgumentError("values is empty; it must hold a value for each person")
    if column == files.VALUE and isinstance(rows[0], _LISTS):
        column = ",".join(f"attribute {place + 1}" for place in range(len(rows[0])))
    texts = [(cell(f"values[{place}]", each),) for place, each in enumerate(rows)]
    if len({isinstance(each, str) for each in rows}) > 1:
        raise ArgumentTypeError("values holds texts and others; write all of them as texts")
    fields = files.tabulate(texts, "values", empty=True)
    return sources.Dataset(name="values", title="Own values", column=column, **fields)


def plain(given: Any) -> Any:  # noqa: ANN401  # any object
    """Return an array, a Series or a number as Python's own; 3.0 as 3, since nothing is lost."""
    for method in ("tolist", "to_list"):
        if hasattr(given, method):
            given = getattr(given, method)()
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _listed(name: str, given: Any) -> list[Any]:  # noqa: ANN401  # any argument
    found = plain(given)
    if not isinstance(found, _LISTS):
        rule = "it must be a list, tuple, array or Series"
        raise ArgumentTypeError(f"{name} has the type {type(given).__name__}; {rule}")
    return list(found)


def _cell(name: str, given: Any) -> str:  # noqa: ANN401  # any value
    """Return a text, or a number's, as a cell of a file holds it."""
    given = plain(given)
    if isinstance(given, str) and given.strip():
        return given
    if str(given).strip() in _MISSING:
        raise ArgumentError(f"{name} is missing; leave such people out")
    if isinstance(given, bool) or not isinstance(given, Real):
        rule = "it must be a text or a number"
        raise ArgumentTypeError(f"{name} has the type {type(given).__name__}; {rule}")
    return str(int(given)) if isinstance(given, Integral) else repr(float(given))


def _row(name: str, given: Any, separator: str) -> str:  # noqa: ANN401  # any value
    """Return a row's cells with a separator between, or a text that has them already."""
    if isinstance(given, str):
        return _cell(name, given)
    return separator.join(_cell(name, each) for each in _listed(name, given))


def _pairs(name: str, given: Any) -> str:  # noqa: ANN401  # any value
    """Return a dict's pairs of key and number, or a text that has them already."""
    if not isinstance(given, Mapping):
        return _cell(name, given)
    return ",".join(f"{_cell(name, key)}:{_cell(name, given[key])}" for key in given)


_FORMS: Final[Mapping[Kind, Callable[[str, Any], str]]] = {
    "vector": partial(_row, separator=","),
    "key-value": _pairs,
    "table": partial(_row, separator=GROUP_SEPARATOR),
}
"""How a value is written, of those kinds whose value is not one text or number."""
