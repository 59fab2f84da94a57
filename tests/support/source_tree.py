"""The folders of the repository that hold code."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PARTIES: Final = ("user_agent", "shuffler", "analyzer", "issuer", "witness", "publisher")
FOLDERS: Final = ("protos", "common", *PARTIES, "deploy", "lab", "audit", "shuffledp")
"""What is installed, the lowest floor first."""


def module_name(path: Path) -> str:
    """Return the name under which a file of these folders is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("shuffledp", *parts)).removesuffix(".__init__")
