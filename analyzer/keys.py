"""The analyzer's secrets: what opens reports, what signs tasks, what an operator must show."""

from dataclasses import dataclass
from typing import Self

from common.hpke import HpkePrivateKey
from common.operator_token import OperatorToken
from common.runtime.state import StateDirectory
from common.signing import SigningIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerKeys:
    """Made on first start, kept in the state directory with mode 0600. Shows fingerprints only."""

    identity: SigningIdentity
    reports: HpkePrivateKey
    operator_token: OperatorToken

    @classmethod
    def load(cls, state: StateDirectory) -> Self:
        """Read the keys, or make them on first start; publish what others need to know."""
        keys = cls(
            identity=SigningIdentity(
                state.secret("identity.key", lambda: SigningIdentity.generate().private_bytes())
            ),
            reports=HpkePrivateKey(
                state.secret("reports.key", lambda: HpkePrivateKey.generate().private_bytes())
            ),
            operator_token=OperatorToken(state.secret("operator.token", OperatorToken.generate)),
        )
        state.publish("identity.pub", keys.identity.public_identity().raw.hex())
        return keys
