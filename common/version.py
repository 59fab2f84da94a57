"""The version of the installed program."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed() -> str:
    try:
        return version("shuffledp")
    except PackageNotFoundError:  # run from a copied tree
        return "unknown"


VERSION: Final = _installed()
