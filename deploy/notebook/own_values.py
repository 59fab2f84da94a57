"""People's values as Python holds them: lists, arrays, Series, data frames; read as a file is."""

from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Final

from shuffledp.common.errors import ArgumentError, ArgumentTypeError
from shuffledp.common.protocols import Kind
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR
from shuffledp.deploy.datasets import files, sources
from shuffledp.deploy.notebook.arguments import plain

Values = Collection[Any]
"""A list, tuple, array or Series of texts or numbers, one for each person. Of several numbers or
attributes: rows of them, a data frame, or a dict of columns. Of pairs: dicts."""
_LISTS: Final = (list, tuple, range)
_MISSING: Final = {"", "None", "nan", "NaN", "<NA>", "NaT"}
"""How Python, numpy and pandas write a missing value; pandas' NA cannot even be compared."""


class OwnValues(sources.Dataset):
    """People from a list, whose places errors write as Python does."""

    def place(self, row: int) -> str:
        return f"values[{row - 1}]"


def own_people(values: Any, kind: Kind, names: Sequence[str] = ()) -> OwnValues:  # noqa: ANN401  # Values, or a mistake
    """
    Return the people who have these values of a kind, as if read from a file.

    `names` are those that a plan has for a row's parts: columns are found by them, and rows are in
    their order. Raises ArgumentError or ArgumentTypeError, which names the place of a value that
    cannot be used.
    """
    separator, cell = _FORMS.get(kind, ("", _cell))
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        found = [*getattr(values, "columns", values)]
        if not separator:
            shown = "".join(f", such as values[{name!r}]" for name in found[:1])
            raise ArgumentTypeError(f"values has columns; {kind} data needs one of them{shown}")
        names = _named(found, names)
        columns = [_listed(f"values[{name!r}]", values[name]) for name in names]
        if len({*map(len, columns)}) > 1:
            raise ArgumentError("values has columns of different lengths")
        written = [
            [cell(f"values[{name!r}][{place}]", each) for place, each in enumerate(column)]
            for name, column in zip(names, columns, strict=True)
        ]
        values = [*zip(*written, strict=True)]
    rows = _listed("values", values)
    if not rows:
        raise ArgumentError("values is empty; it must hold a value for each person")
    column, mixed = files.VALUE, cell is _cell and len({isinstance(each, str) for each in rows}) > 1
    if separator and not isinstance(rows[0], str):
        size = len(names) or len(_listed("values[0]", rows[0]))
        parts = names or [f"attribute {place + 1}" for place in range(size)]
        column = ",".join(str(part).replace(",", " ") for part in parts)
        rows = [
            _row(f"values[{place}]", each, size, separator, cell) for place, each in enumerate(rows)
        ]
    cell = _cell if separator else cell
    texts = [(cell(f"values[{place}]", each),) for place, each in enumerate(rows)]
    if mixed:
        raise ArgumentTypeError("values holds texts and others; write all of them as texts")
    fields = files.tabulate(texts, "values", empty=True)
    return OwnValues(name="values", title="Own values", column=column, **fields)


def _named(found: Sequence[Any], names: Sequence[str]) -> Sequence[Any]:
    """Return the columns to read: all, or those of a plan in its order, which must be all."""
    if twice := [name for place, name in enumerate(found) if name in found[:place]]:
        raise ArgumentError(f"values has two columns {twice[0]}")
    if missing := [name for name in names if name not in found]:
        listed = ", ".join(names)
        raise ArgumentError(f"values has no column {missing[0]}; the plan's are {listed}")
    if more := [str(name) for name in found if name not in names and names]:
        raise ArgumentError(f"values has columns that the plan has not: {', '.join(more)}")
    return names or found


def _listed(name: str, given: Any) -> list[Any]:  # noqa: ANN401  # any argument
    found = plain(given)
    if not isinstance(found, _LISTS):
        rule = "it must be a list, tuple, array or Series"
        raise ArgumentTypeError(f"{name} has the type {type(given).__name__}; {rule}")
    return list(found)


def _cell(
    name: str,
    given: Any,  # noqa: ANN401  # any value
    rule: str = "a text or a number; str makes a text of it",
) -> str:
    """Return a text, or a number's, as a cell of a file holds it."""
    given = plain(given)
    if isinstance(given, str) and given.strip():
        return given
    if str(given).strip() in _MISSING:
        raise ArgumentError(f"{name} is missing; leave such people out")
    if isinstance(given, bool) or not isinstance(given, Real):
        raise ArgumentTypeError(f"{name} has the type {type(given).__name__}; it must be {rule}")
    return str(int(given)) if isinstance(given, Integral) else repr(float(given))


def _number(name: str, given: Any) -> str:  # noqa: ANN401  # any value
    """Return a number's text."""
    text = _cell(name, given, "a number")
    if files.number_of(text) is None:
        raise ArgumentTypeError(f"{name} must be a number")
    return text


def _row(
    name: str,
    given: Any,  # noqa: ANN401  # any value
    size: int,
    separator: str,
    cell: Callable[[str, Any], str],
) -> str:
    """Return the texts of a row's parts with a separator between."""
    parts = _listed(name, given)
    if len(parts) != size:
        raise ArgumentError(f"{name} has the length {len(parts)}; each row must have {size}")
    return separator.join(cell(f"{name}[{place}]", part) for place, part in enumerate(parts))


def _pairs(name: str, given: Any) -> str:  # noqa: ANN401  # any value
    """Return a dict's pairs of key and number, or a text that has them already."""
    if isinstance(given, str):
        return _cell(name, given)
    if not isinstance(given, Mapping):
        rule = "it must be a dict of numbers by key"
        raise ArgumentTypeError(f"{name} has the type {type(given).__name__}; {rule}")
    texts = {_cell(f"a key of {name}", key): f"{name}[{key!r}]" for key in given}
    numbers = map(_number, texts.values(), given.values())
    return ",".join(map(":".join, zip(texts, numbers, strict=True)))


_FORMS: Final[Mapping[Kind, tuple[str, Callable[[str, Any], str]]]] = {
    "mean": ("", _number),
    "ordered": ("", _number),
    "vector": (",", _number),
    "key-value": ("", _pairs),
    "table": (GROUP_SEPARATOR, _cell),
}
"""What separates a value's parts, and how a part is written, of kinds that are not one cell."""
