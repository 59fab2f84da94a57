"""
Who is calling: what a certificate and a token must say for a call to be made.

On a Unix socket, and on plaintext loopback, there are no certificates: the kernel, or whoever set
`plaintext`, says who may connect. The token is asked for everywhere.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from common.errors import CallerError, CredentialError
from common.operator_token import OperatorToken
from common.runtime.calls import Caller

_BEARER: Final = "Bearer "
_NAMED_BY_CERTIFICATE: Final = frozenset({Caller.SHUFFLER, Caller.OPERATOR})
_WITH_TOKEN: Final = frozenset({Caller.OPERATOR, Caller.TOKEN_HOLDER})


def check_caller(
    allowed: Caller,
    names: frozenset[str] | None,
    shown: str | None,
    token: OperatorToken | None,
) -> None:
    """
    Check that a caller may make a call.

    Args:
        allowed: Who may.
        names: What the caller's certificate names; None where there are no certificates.
        shown: The token that came with the call.
        token: The service's own; None if it has no operator.

    Raises:
        CallerError: The certificate names somebody else.
        CredentialError: The token is missing, or not the service's.
    """
    if allowed in _NAMED_BY_CERTIFICATE and names is not None and allowed.value not in names:
        raise CallerError(
            f"this call is for the {allowed.value}: the caller's certificate names "
            f"{', '.join(sorted(names)) or 'nobody'}"
        )
    if allowed in _WITH_TOKEN:
        if token is None:
            raise CredentialError("this service has no operator")
        token.check(shown)


def names_in(certificate: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """
    Give the party that a verified certificate names, from gRPC's description of the connection.

    It is the common name. The alternative names also hold hosts, and a host may be called
    anything; they count only in a certificate that has no common name.
    """
    found = [*certificate.get("x509_common_name", ())] or [
        *certificate.get("x509_subject_alternative_name", ())
    ]
    return frozenset(name.decode("utf-8", errors="replace") for name in found)


def bearer_token(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """Find the token among what came with a call."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value.startswith(_BEARER):
            return value.removeprefix(_BEARER)
    return None
