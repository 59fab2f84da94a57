"""
Every function of the project that parses outside data, with valid examples.

A test in tests/architecture reads all examples, and fails if such a function was not called. Any
bytes must give a value or a ShuffleDpError, in bounded time and memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from google.protobuf.message import Message

from shuffledp.common.runtime.admission import read_message
from tests.support.mutation import Form

MODULES: Final = ("wire", "log", "byte", "text", "file", "key")
_KEPT: Final[list[TemporaryDirectory[str]]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """One parser and its inputs."""

    name: str
    read: Callable[[bytes], object]
    """Parses bytes, and uses the value as its first caller does."""
    seeds: tuple[bytes, ...]
    """Valid examples."""
    form: Form = "binary"
    message: str = ""
    """Name of the protobuf message, if it is one."""
    share: float = 16.0
    """Relative share of all inputs: less for parsers that cost more."""
    most_seconds: float = 5.0
    """Processor time for one input of at most 128 kB."""


@cache
def directory() -> Path:
    """Return a directory that lasts as long as the process."""
    _KEPT.append(TemporaryDirectory(prefix="shuffledp-parsers-"))
    return Path(_KEPT[-1].name)


def typed(name: str, read: Callable[[str], object], *seeds: str, share: float = 16.0) -> Parser:
    """Register a reader of text from the operating system; invalid UTF-8 becomes surrogates."""
    return Parser(
        name=name,
        read=lambda raw: read(raw.decode("utf-8", "surrogateescape")),
        seeds=tuple(seed.encode() for seed in seeds),
        form="text",
        share=share,
    )


def file_parser(
    file_name: str, read: Callable[[Path], object], *seeds: bytes, name: str = "", **more: Any
) -> Parser:
    """Register a reader of a file below `directory()`; `more` are fields of the parser."""

    def from_bytes(raw: bytes) -> object:
        path = directory() / file_name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(raw)
        path.chmod(0o600)
        return read(path)

    return Parser(name=name or file_name, read=from_bytes, seeds=seeds, **more)


def message_parser(
    name: str, read: Callable[[Any], object], *seeds: Message, share: float = 16.0
) -> Parser:
    """Register a reader of the seeds' message type."""
    return Parser(
        name=name,
        read=lambda raw: read(read_message(type(seeds[0]).FromString, raw)),
        seeds=tuple(seed.SerializeToString() for seed in seeds),
        form="protobuf",
        message=type(seeds[0]).__name__,
        share=share,
    )


def parsers(*modules: str) -> dict[str, Parser]:
    """Return some modules' parsers, or all, by name; these modules load most of the tree."""
    loaded = (import_module(f"tests.support.{name}_parsers") for name in modules or MODULES)
    return {parser.name: parser for module in loaded for parser in module.PARSERS}
