"""The version of the installed program."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

VERSION = "unknown"  # if run from a copied tree
with suppress(PackageNotFoundError):
    VERSION = version("shuffledp")
