"""The analyzer's secrets: what opens reports, what signs tasks, what an operator must show."""

from dataclasses import dataclass
from typing import Self

from common.crypto.key_ring import Schedule
from common.crypto.signing import SigningIdentity
from common.crypto.tokens import OperatorToken
from common.runtime.key_store import KeyStore, load_identity
from common.runtime.state_directory import StateDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerKeys:
    """Made on first start, kept in the state directory with mode 0600. Shows no secret."""

    identity: SigningIdentity
    """Lives for ever: devices and shufflers pin it."""
    reports: KeyStore
    """Rotated: what reports are sealed to."""
    operator_token: OperatorToken

    @classmethod
    def load(cls, state: StateDirectory, schedule: Schedule, now: float) -> Self:
        """
        Read the keys, or make them on first start; publish what others need to know.

        Raises:
            SettingsError: A file is open to others, damaged, or sealed under another state key.
        """
        keys = cls(
            identity=load_identity(state),
            reports=KeyStore(state, schedule, former="reports.key"),
            operator_token=OperatorToken(
                state.plain_secret("operator.token", OperatorToken.generate)
            ),
        )
        keys.reports.rotate(now)
        return keys
