"""Standard JSON output: no NaN, and infinity as the string "inf"."""

import dataclasses
import json
import math
import sys
from typing import Any

from common.messages.guarantee import Guarantee


def guarantee_as_json(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee's fields for JSON."""
    fields = dataclasses.asdict(guarantee)
    return {name: number_or_text(value) for name, value in fields.items()}


def number_or_text(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return "inf" or "-inf" for infinity, and any other value unchanged."""
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def dumps(value: object) -> str:
    """Serialize to JSON; raise ValueError for NaN or infinity."""
    return json.dumps(value, indent=1, allow_nan=False)


def print_json(value: object) -> None:
    """Print as JSON; raise ValueError for NaN or infinity."""
    sys.stdout.write(dumps(value) + "\n")
