import secrets

import pytest

from shuffledp.common.errors import CallerError, CredentialError
from shuffledp.common.runtime.access import Caller, OperatorToken, bearer_token, check_caller
from tests.support.tables import table

_SECRET = "5e" * 32
_TOKEN = OperatorToken(_SECRET.encode())


@table(
    ("allowed", "name", "shown", "refusal"),
    [
        (Caller.ANYONE, None, None, None),
        (Caller.DEVICE, None, None, None),
        (Caller.ANYONE, "user_agent", None, None),
        (Caller.SHUFFLER, "shuffler", None, None),
        (Caller.SHUFFLER, "user_agent", None, CallerError),
        (Caller.SHUFFLER, "relay", None, CallerError),
        (Caller.SENDER, "relay", None, None),
        (Caller.SENDER, "shuffler", None, None),
        (Caller.SENDER, "operator", None, CallerError),
        (Caller.SHUFFLER, "analyzer", None, CallerError),
        (Caller.SHUFFLER, "operator", _SECRET, CallerError),
        (Caller.SHUFFLER, None, None, None),
        (Caller.OPERATOR, "operator", _SECRET, None),
        (Caller.OPERATOR, "operator", "other", CredentialError),
        (Caller.OPERATOR, "operator", None, CredentialError),
        (Caller.OPERATOR, "shuffler", _SECRET, CallerError),
        (Caller.OPERATOR, None, _SECRET, None),
        (Caller.OPERATOR, None, None, CredentialError),
        (Caller.TOKEN_HOLDER, None, _SECRET, None),
        (Caller.TOKEN_HOLDER, None, "", CredentialError),
        (Caller.TOKEN_HOLDER, None, _SECRET[:-1], CredentialError),
        (Caller.TOKEN_HOLDER, None, f"{_SECRET}0", CredentialError),
        (Caller.TOKEN_HOLDER, None, _SECRET.upper(), CredentialError),
        (Caller.SHUFFLER, "", None, CallerError),
    ],
)
def test_certificate_and_token_decide_who_may_call(
    allowed: Caller, name: str | None, shown: str | None, refusal: type[Exception] | None
) -> None:
    """Without TLS only the token rule applies. The name "" is a certificate without a name."""
    names = None if name is None else frozenset({name} - {""})
    if refusal is None:
        check_caller(allowed, names, shown, _TOKEN)
        return
    with pytest.raises(refusal):
        check_caller(allowed, names, shown, _TOKEN)


def test_a_bearer_token_is_read_from_the_authorization_header() -> None:
    """Any other header or scheme holds no token."""
    headers = [("other", "x"), ("authorization", "secret"), ("authorization", "Bearer secret")]

    assert [None, None, "secret"] == [bearer_token((header,)) for header in headers]
    assert bearer_token(None) is None


def test_a_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is not ==, which stops at the first difference."""
    honest, compared = secrets.compare_digest, list[bytes]()

    def noted(shown: bytes, own: bytes) -> bool:
        compared.append(shown)
        return honest(shown, own)

    monkeypatch.setattr(secrets, "compare_digest", noted)
    _TOKEN.check(_SECRET)
    with pytest.raises(CredentialError, match="wrong"):
        _TOKEN.check(f"{_SECRET[:-1]}f")
    assert 2 == len(compared)
