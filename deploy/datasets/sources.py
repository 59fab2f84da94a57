"""Read a data set by name: a shipped one, a file or a synthetic distribution."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.messages.submission import parse_number
from shuffledp.common.task.labels import MAX_LABEL_CHARACTERS
from shuffledp.common.task.specs import MAX_DOMAIN_SIZE, check_int_range
from shuffledp.deploy.datasets import files
from shuffledp.deploy.datasets.files import MAX_PEOPLE, VALUE
from shuffledp.deploy.datasets.names import SHIPPED

_NO_VALUES: Final = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "nil"})
"""Words that often stand for a missing value, in lower case."""
T = TypeVar("T")
_DEFAULT_USERS: Final = 1_000_000
_DEFAULT_EXPONENT: Final = 1.1
_MAX_EXPONENT: Final = 20.0
_NAMES: Final = {"zipf": "Zipf", "uniform": "uniform"}
_FORMS: Final = "zipf:SIZE, zipf:SIZE,EXPONENT"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """A histogram of people by item."""

    name: str
    title: str
    """A description, which says so if the data is not real."""
    labels: tuple[str, ...]
    """Names of the items, or empty."""
    counts: NDArray[np.int64]
    """Number of people with each item, shape (domain_size,)."""
    rows: NDArray[np.int64] | None = None
    """The first row of each item in the data set's file, shape (domain_size,)."""
    column: str = ""
    """Names of the columns that the items are from, with commas between; empty if unknown."""
    missing: int = 0
    """Number of further people, whose rows in the file have no value."""

    def __post_init__(self) -> None:
        """Raise TaskError if the number of people or people per item is out of range."""
        for extreme in (self.counts.min(), self.counts.max()):
            check_int_range(f"people per item of {self.name}", int(extreme), 0, MAX_PEOPLE)
        check_int_range(f"people of {self.name}", self.n_users, 1, MAX_PEOPLE)

    @property
    def n_users(self) -> int:
        """Number of people."""
        return int(self.counts.sum())

    @property
    def domain_size(self) -> int:
        """Number of items."""
        return len(self.counts)

    @property
    def remarks(self) -> list[str]:
        """Sentences on values that are missing, or may be."""
        found = [
            f"{label} counts as a value; leave the cell empty if it is none."
            for label in self.labels
            if label.casefold() in _NO_VALUES
        ]
        if self.missing:
            found.append(
                f"People of {self.name} without a value, who are left out: {self.missing:,}."
            )
        return found

    def check_items(self) -> None:
        """Raise TaskError unless there are several items, and their labels can be a task's."""
        name = f"the number of different values in {self.name}"
        check_int_range(name, self.domain_size, 2, MAX_DOMAIN_SIZE)
        self.parsed(_check_label)

    def parsed(self, parse: Callable[[str], T]) -> list[T]:
        """Parse every label; if any raises ValueRangeError, raise TaskError with the first row."""
        found, wrong = list[T](), dict[int, str]()
        for item, label in enumerate(self.labels):
            try:
                found.append(parse(label))
            except ValueRangeError as error:
                wrong[item] = str(error)
        if wrong:
            items = [*wrong]
            rows = np.add(items, 1) if self.rows is None else self.rows[items]
            first, people = int(rows.argmin()), int(self.counts[items].sum())
            raise TaskError(
                f"{self.place(rows[first])}: {wrong[items[first]]} (people whose values break a "
                f"rule: {people:,})"
            )
        return found

    def place(self, row: int) -> str:
        """Return the place of a row, counted from 1, for errors."""
        column = f", column {self.column}" * (self.column not in {"", files.VALUE})
        return f"row {row} of {self.name}{column}"

    def draw(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw n_users people as `sample_counts` does; return their items in random order."""
        counts = self.sample_counts(n_users, rng)
        return rng.permutation(np.repeat(np.arange(self.domain_size), counts))

    def sample_counts(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw n_users people without replacement; return counts, shape (domain_size,)."""
        self.check_users(n_users)
        drawn = rng.multivariate_hypergeometric(self.counts, n_users, method="marginals")
        return np.asarray(drawn, dtype=np.int64)

    def check_users(self, n_users: int) -> None:
        """Raise TaskError unless n_users people can be drawn without replacement."""
        if not (isinstance(n_users, Integral) and 1 <= n_users <= self.n_users):
            raise TaskError(f"users is {n_users}; for {self.name} it must be 1 to {self.n_users}")


def _check_label(label: str) -> None:
    if len(label) > MAX_LABEL_CHARACTERS:
        raise ValueRangeError(
            f"it has {len(label):,} characters; an item may have at most {MAX_LABEL_CHARACTERS}"
        )


def load(name: str) -> Dataset:
    """Return a shipped data set; raise TaskError if the name is unknown."""
    if name not in SHIPPED:
        raise TaskError(f"unknown data set; the shipped data sets are {', '.join(SHIPPED)}")
    [path] = Path(__file__).parent.glob(f"{name}.csv*")
    return Dataset(name=name, title=SHIPPED[name], **files.read(path))


def is_file(text: str) -> bool:
    """Return whether a text names a data file."""
    return text.lower().endswith(files.ENDINGS)


def dataset(
    text: str, n_users: int | None = None, column: str | None = None, *, empty: bool = False
) -> Dataset:
    """
    Return a data set, or raise TaskError if there is none, or none with n_users people.

    `text` names a shipped data set, a file, or a distribution: `zipf:SIZE`, `zipf:SIZE,EXPONENT` or
    `uniform:SIZE`, of n_users people, by default a million. `column` is that of a file's values, or
    several with commas between; if `empty`, empty cells are values.
    """
    if column is not None and not is_file(text):
        raise TaskError(f"the column is {column}; only a file has columns")
    distribution, colon, numbers = text.partition(":")
    if colon and distribution in _NAMES:
        people = _DEFAULT_USERS if n_users is None else n_users
        return _synthetic(distribution, numbers.split(","), people)
    if is_file(text):
        path = Path(text)
        column = VALUE if column is None else column
        fields = files.read(path, column, empty=empty)
        data = Dataset(name=path.name, title=f"The file {path.name}", column=column, **fields)
    elif text in SHIPPED:
        data = load(text)
    else:
        raise TaskError(
            f"{text} is not a data set; it must be {', '.join(SHIPPED)}, a file that "
            f"ends with {', '.join(files.ENDINGS)}, or {_FORMS}, uniform:SIZE"
        )
    if n_users is not None:
        data.check_users(n_users)
    return data


def _synthetic(distribution: str, parts: list[str], n_users: int) -> Dataset:
    """Return uniform data, or Zipf data in which item r has a share ∝ (r + 1)^-exponent."""
    if len(parts) > (2 if distribution == "zipf" else 1):
        raise TaskError(f"{distribution} has {len(parts)} numbers; write {_FORMS} or uniform:SIZE")
    try:
        exponent = [*(parse_number(part, "") for part in parts), _DEFAULT_EXPONENT][1]
        size = int(parts[0])
    except (ValueError, ValueRangeError) as error:
        raise TaskError(f"{distribution} needs numbers; write {_FORMS} or uniform:SIZE") from error
    check_int_range(f"the items of a {_NAMES[distribution]} distribution", size, 2, MAX_DOMAIN_SIZE)
    if not 0 <= exponent <= _MAX_EXPONENT:
        raise TaskError(f"exponent is {exponent}; it must lie between 0 and {_MAX_EXPONENT:g}")
    name, title = f"zipf:{size},{exponent:g}", f"Zipf with exponent {exponent:g}"
    if distribution == "uniform":
        name, title, exponent = f"uniform:{size}", "uniform", 0.0
    weights = np.arange(1, size + 1, dtype=np.float64)
    np.power(weights, -exponent, out=weights)
    title = f"Synthetic: {title} over {size:,} items"
    return Dataset(name=name, title=title, labels=(), counts=apportion(weights, n_users))


def apportion(weights: NDArray[np.float64], n_users: int) -> NDArray[np.int64]:
    """
    Divide people among items in proportion to weights, by the largest-remainder method.

    Ties go to lower items. `weights`, shape (domain_size,), is overwritten, to save memory.
    """
    check_int_range("users", n_users, 1, MAX_PEOPLE)
    weights /= weights.sum()
    weights *= n_users
    counts = weights.astype(np.int64)
    left = n_users - int(counts.sum())
    np.subtract(counts, weights, out=weights)
    counts[np.argsort(weights, kind="stable")[:left]] += 1
    return counts
