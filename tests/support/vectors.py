"""Files of test vectors, published ones and our own."""

import json
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parents[1] / "vectors"


def vectors(name: str) -> Any:
    """Return the content of a file of tests/vectors."""
    return json.loads((_FOLDER / name).with_suffix(".json").read_text(encoding="utf-8"))
