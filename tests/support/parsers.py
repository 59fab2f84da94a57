"""
Every function of the project that reads bytes or text from outside, with valid examples of each.

A test in tests/architecture finds such functions in the tree and fails if one is missing here. The
property that is tested of each: any bytes give a value or a ShuffleDpError, in bounded time and
memory, and never another exception.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tests.support.mutation import Form


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """One way in, and what it is fed."""

    name: str
    read: Callable[[bytes], object]
    """Reads bytes from outside, and does with what it read what its first user does."""
    seeds: tuple[bytes, ...]
    """Valid examples: each gives a value."""
    form: Form
    covers: tuple[str, ...]
    """The functions of the tree that it exercises, by module and name."""
    share: float = 16.0
    """How many inputs of all it gets, relative to the others: fewer where an input costs more."""
    most_seconds: float = 5.0
    """Of processor time for one input of at most 128 kB; a file of questions is searched for
    several bounds, nearly everything else takes milliseconds."""


@cache
def parsers() -> dict[str, Parser]:
    """Give every parser by its name. What they need is made once."""
    # Imported when asked for: what is registered imports most of the tree.
    from tests.support.byte_parsers import BYTE_PARSERS  # noqa: PLC0415
    from tests.support.evidence_parsers import EVIDENCE_PARSERS  # noqa: PLC0415
    from tests.support.file_parsers import FILE_PARSERS  # noqa: PLC0415
    from tests.support.key_parsers import KEY_PARSERS  # noqa: PLC0415
    from tests.support.load_parsers import LOAD_PARSERS  # noqa: PLC0415
    from tests.support.text_parsers import TEXT_PARSERS  # noqa: PLC0415
    from tests.support.wire_parsers import WIRE_PARSERS  # noqa: PLC0415

    every = (
        *(*WIRE_PARSERS, *EVIDENCE_PARSERS, *BYTE_PARSERS),
        *(*TEXT_PARSERS, *FILE_PARSERS, *KEY_PARSERS, *LOAD_PARSERS),
    )
    return {parser.name: parser for parser in every}
