"""The analyzer's keys."""

from dataclasses import dataclass
from typing import Self

from shuffledp.common.crypto.key_ring import Schedule
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.runtime.access import OperatorToken
from shuffledp.common.runtime.key_store import KeyStore, load_identity
from shuffledp.common.runtime.state_directory import StateDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerKeys:
    """The analyzer's keys, created on first start, in the state directory with mode 0600."""

    identity: SigningIdentity
    """Never rotated, since devices and shufflers pin it."""
    reports: KeyStore
    """Keys that reports are sealed to; rotated."""
    operator_token: OperatorToken

    @classmethod
    def load(cls, state: StateDirectory, schedule: Schedule, now: float) -> Self:
        """
        Read the keys, or create them on first start; publish the public ones.

        Raises SettingsError if one is readable by others, damaged, or under another state key.
        """
        keys = cls(
            identity=load_identity(state),
            reports=KeyStore(state, schedule),
            operator_token=OperatorToken(
                state.plain_secret("operator.token", OperatorToken.generate)
            ),
        )
        keys.reports.rotate(now)
        return keys
