"""Behaviours of simulated users, and the answers that services must return. Pure."""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import PlanError
from common.messages.submission import Outcome


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


FLOOD: Final = 100

ENVELOPES: Final = np.array([1, 1, 1, 2, 1, 1, 0], dtype=np.int64)
"""Number of envelopes prepared per user, by behaviour."""

COUNTED: Final = (Behaviour.HONEST, Behaviour.DUPLICATE, Behaviour.FLOODING, Behaviour.CONFLICT)
"""Behaviours of users whose value must be counted once."""

MISBEHAVING: Final = tuple(kind for kind in Behaviour if kind is not Behaviour.HONEST)
NAMES: Final = ", ".join(kind.name.lower() for kind in MISBEHAVING)
"""The misbehaviours, as `shares_from` reads them."""


def shares_from(text: str) -> dict[Behaviour, float]:
    """Parse shares of behaviours, or one share split evenly over all, or raise PlanError."""
    try:
        if "=" in text:
            pairs = (part.split("=") for part in text.split(","))
            shares = {Behaviour[name.strip().upper()]: float(number) for name, number in pairs}
        else:
            shares = dict.fromkeys(MISBEHAVING, float(text) / len(MISBEHAVING))
    except (KeyError, ValueError) as error:
        raise PlanError(
            f"misbehaving must be a share, such as 0.1, or shares of behaviours, such as "
            f"malformed=0.02,duplicate=0.1; the behaviours are {NAMES}"
        ) from error
    total = sum(shares.values())
    if Behaviour.HONEST in shares or min(shares.values()) < 0 or not total < 1 - 1e-9:
        raise PlanError(
            f"the shares of misbehaving users sum to {total:g}; each must be at least 0, and their "
            "sum below 1"
        )
    return shares


def assign(
    n_users: int, shares: Mapping[Behaviour, float], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Assign behaviours in random order; the last user is honest. Raises PlanError if none is."""
    kinds = np.zeros(n_users, dtype=np.uint8)
    numbers = {kind: round(share * n_users) for kind, share in shares.items()}
    misbehaving = np.repeat(list(numbers), list(numbers.values())).astype(np.uint8)
    if len(misbehaving) >= n_users:
        raise PlanError(
            f"{len(misbehaving)} of {n_users} users would misbehave; at least one must be honest"
        )
    kinds[: len(misbehaving)] = misbehaving
    kinds[:-1] = rng.permutation(kinds[:-1])
    return kinds


def is_counted(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return whether each user's value must be counted; shape (n_users,)."""
    return np.isin(kinds, COUNTED)


def check_users(kinds: NDArray[np.uint8], n_min: int, target_size: int) -> None:
    """Raise PlanError unless a batch with these ends is open to the last user, or can be closed."""
    stored = expected_answers(kinds)[Outcome.STORED]
    if not n_min <= stored <= target_size:
        raise PlanError(
            f"{stored:,} users would be stored; n_min and target_size allow {n_min:,} to "
            f"{target_size:,}: use --users"
        )


def expected_answers(kinds: NDArray[np.uint8]) -> Counter[Outcome]:
    """Return the expected count of each answer if none is lost and no service is overloaded."""
    users = np.bincount(kinds, minlength=len(Behaviour)).tolist()
    return Counter(
        {
            Outcome.STORED: sum(users[kind] for kind in COUNTED),
            Outcome.REPEATED: users[Behaviour.DUPLICATE] + (FLOOD - 1) * users[Behaviour.FLOODING],
            Outcome.CONFLICT: users[Behaviour.CONFLICT],
            Outcome.MALFORMED: users[Behaviour.MALFORMED] + users[Behaviour.OVERSIZED],
        }
    )
