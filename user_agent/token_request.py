"""Get one-time tokens from the issuer."""

from dataclasses import dataclass

from common.crypto.privacy_tokens import PendingToken
from user_agent.credentials import CredentialFile
from user_agent.issuer_client import Issuer


async def request_token(issuer: Issuer, pending: PendingToken, credential: bytes) -> bytes:
    """
    Get a token; safe to repeat, since the issuer signs the same request again.

    Raises:
        ProofError: The issuer's signature is wrong.
        PeerError, PeerRefusalError: The issuer does not answer, or refuses the request.
    """
    signature = await issuer.issue(pending.key.key_id, pending.blinded(), credential)
    return pending.finalize(signature)


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The issuer, and the credentials that it asks for."""

    issuer: Issuer
    credentials: CredentialFile

    async def get(self, pending: PendingToken, person: str) -> bytes:
        """Get a person's token; raise SettingsError or the errors of `request_token`."""
        return await request_token(self.issuer, pending, self.credentials.of(person))
