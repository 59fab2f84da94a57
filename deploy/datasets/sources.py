"""Read a data set by name: a shipped one, a file or a synthetic distribution."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError, ValueRangeError
from common.messages.submission import parse_number
from common.task.specs import MAX_DOMAIN_SIZE, check_int_range
from deploy.datasets import catalogue, files
from deploy.datasets.catalogue import Dataset
from deploy.datasets.files import MAX_PEOPLE, VALUE
from deploy.datasets.names import SHIPPED

_DEFAULT_USERS: Final = 1_000_000
_DEFAULT_EXPONENT: Final = 1.1
_MAX_EXPONENT: Final = 20.0
_NAMES: Final = {"zipf": "Zipf", "uniform": "uniform"}
_FORMS: Final = "zipf:SIZE, zipf:SIZE,EXPONENT"


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
        data = catalogue.load(text)
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
