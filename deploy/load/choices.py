"""Choices that a load run offers: behaviours of users, and modes."""

from enum import IntEnum
from typing import Final, Literal

Mode = Literal["users", "bulk"]
Pattern = Literal["steady", "burst"]
TargetKind = Literal["services", "local", "sink"]


class Behaviour(IntEnum):
    """The behaviour of one simulated user; prepared files store these numbers."""

    HONEST = 0
    """Submits once; retries with the same bytes until answered."""
    DUPLICATE = 1
    """Honest, then sends the same bytes once more."""
    FLOODING = 2
    """Honest, and sends FLOOD copies at once over one connection."""
    CONFLICT = 3
    """Honest, then sends other bytes under the same submission id."""
    MALFORMED = 4
    """Sends an envelope of the right length that does not open."""
    OVERSIZED = 5
    """Sends an envelope longer than the task's."""
    DROPPING = 6
    """Opens a connection and a call, and leaves before sending the envelope."""


MISBEHAVING: Final = tuple(kind for kind in Behaviour if kind is not Behaviour.HONEST)
NAMES: Final = ", ".join(kind.name.lower() for kind in MISBEHAVING)
"""The misbehaviours, as `shares_from` reads them."""
