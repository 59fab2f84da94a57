"""Standard JSON: "inf" and "-inf" for infinity, null for NaN, bytes in hexadecimal."""

import dataclasses
import json
import math
import sys
from collections.abc import Callable
from typing import Any, cast

from rich.console import Console

from shuffledp.deploy.terminal.console import terminal


def plain(value: object) -> Any:  # noqa: ANN401  # any JSON value
    """Convert a dataclass, mapping, sequence, array, number or bytes, and all in it, for JSON."""
    if hasattr(value, "tolist"):  # numpy's arrays and numbers; help needs no numpy
        value = value.tolist()
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(cast("Any", value))
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def dumps(value: object) -> str:
    """Serialize to JSON."""
    return json.dumps(plain(value), indent=1, allow_nan=False)


def print_json(value: object) -> None:
    """Print as JSON."""
    sys.stdout.write(dumps(value) + "\n")


def print_answer(fields: object, shown: str | Callable[[Console], None], *, json: bool) -> None:
    """Print JSON fields, or what a function returns; for people, a text or what another prints."""
    if json:
        print_json(fields() if callable(fields) else fields)
    elif isinstance(shown, str):
        terminal().print(shown, markup=False, soft_wrap=True)
    else:
        shown(terminal())
