"""Find the data set that a text names: a shipped one, a file, or a distribution."""

from pathlib import Path

from common.errors import TaskError
from deploy.datasets import catalogue, files, synthetic
from deploy.datasets.catalogue import Dataset
from deploy.datasets.table import VALUE

_ZIPF_PARTS = (1, 2)


def dataset(text: str, n_users: int | None = None, column: str | None = None) -> Dataset:
    """
    Read or make the data set that a text names.

    Args:
        text: The name of a shipped one; the path of a file that ends with .csv, .csv.gz or
            .parquet; `zipf:SIZE`, `zipf:SIZE,EXPONENT` or `uniform:SIZE`.
        n_users: Of a law, how many people it has (a million if None). Of all others, how many
            will be drawn: checked, and left to `Dataset.draw` or `Dataset.sample_counts`.
        column: Of a file, the column of the values; `value` if None.

    Raises:
        TaskError: The text names nothing, or what it names breaks a rule, or has fewer people.
    """
    of_file = text.lower().endswith(files.ENDINGS)
    if column is not None and not of_file:
        raise TaskError(f"the column {column} is one of a file; this data set is none")
    law, colon, numbers = text.partition(":")
    if colon and law in {"zipf", "uniform"}:
        people = synthetic.DEFAULT_USERS if n_users is None else n_users
        return _made(law, numbers.split(","), people)
    if of_file:
        found = files.read(Path(text), VALUE if column is None else column)
    elif text in catalogue.SHIPPED:
        found = catalogue.load(text)
    else:
        raise TaskError(
            f"there is no such data set; name one of {', '.join(catalogue.SHIPPED)}, a file that "
            f"ends with {', '.join(files.ENDINGS)}, or zipf:SIZE, zipf:SIZE,EXPONENT, uniform:SIZE"
        )
    if n_users is not None:
        found.check_users(n_users)
    return found


def _made(law: str, parts: list[str], n_users: int) -> Dataset:
    try:
        size = int(parts[0])
        if law == "uniform" and len(parts) == 1:
            return synthetic.uniform(size, n_users)
        if law == "zipf" and len(parts) in _ZIPF_PARTS:
            exponent = float(parts[1]) if len(parts) > 1 else synthetic.DEFAULT_EXPONENT
            return synthetic.zipf(size, exponent, n_users)
    except ValueError as error:
        raise TaskError(f"the numbers of a law {law} are not numbers") from error
    raise TaskError(
        f"a law {law} has {len(parts)} numbers; write zipf:SIZE, zipf:SIZE,EXPONENT or uniform:SIZE"
    )
