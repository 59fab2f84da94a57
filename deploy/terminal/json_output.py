"""JSON that any program can read: no NaN, and infinity as the text "inf"."""

import dataclasses
import json
import math
import sys
from typing import Any

from common.messages.guarantee import Guarantee


def guarantee_as_json(guarantee: Guarantee) -> dict[str, Any]:
    """Return every field of a guarantee."""
    fields = dataclasses.asdict(guarantee)
    return {name: number_or_text(value) for name, value in fields.items()}


def number_or_text(value: Any) -> Any:  # noqa: ANN401  # anything JSON holds
    """Replace infinity by text."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def dumps(value: object) -> str:
    """Write JSON without NaN and infinity."""
    return json.dumps(value, indent=1, allow_nan=False)


def print_json(value: object) -> None:
    """Print JSON without NaN and infinity."""
    sys.stdout.write(dumps(value) + "\n")
