"""The folders of the repository that hold code."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PARTIES: Final = ("user_agent", "shuffler", "analyzer", "issuer", "witness", "publisher")
FOLDERS: Final = ("protos", "common", *PARTIES, "deploy", "lab", "audit")
"""What is installed, the lowest floor first."""
