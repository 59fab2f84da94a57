import secrets
from typing import Final

import pytest

from common.errors import CallerError, CredentialError
from common.runtime.access import (
    CALLS,
    Caller,
    OperatorToken,
    bearer_token,
    check_caller,
    names_in,
)
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, user_agent_pb2

_SECRET = "5e" * 32
_TOKEN = OperatorToken(_SECRET.encode())


@pytest.mark.parametrize(
    ("allowed", "name", "shown", "refusal"),
    [
        (Caller.ANYONE, None, None, None),
        (Caller.ANYONE, "user_agent", None, None),
        (Caller.SHUFFLER, "shuffler", None, None),
        (Caller.SHUFFLER, "user_agent", None, CallerError),
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
    """Without TLS the certificate rule is waived, the token rule never; "" is an unnamed one."""
    names = None if name is None else frozenset({name} - {""})
    if refusal is None:
        check_caller(allowed, names, shown, _TOKEN)
        return
    with pytest.raises(refusal):
        check_caller(allowed, names, shown, _TOKEN)


def test_the_common_name_takes_precedence_over_alternative_names() -> None:
    """A host called shuffler is not the shuffler."""
    names = {"x509_subject_alternative_name": [b"shuffler", b"localhost"]}

    assert frozenset({"shuffler", "localhost"}) == names_in(names)
    assert frozenset({"analyzer"}) == names_in({**names, "x509_common_name": [b"analyzer"]})
    assert frozenset() == names_in({})


def test_a_bearer_token_is_read_from_the_authorization_header() -> None:
    """Any other header or scheme holds no token."""
    headers = [("other", "x"), ("authorization", "secret"), ("authorization", "Bearer secret")]

    assert [None, None, "secret"] == [bearer_token((header,)) for header in headers]
    assert bearer_token(None) is None


_RULES: Final = {
    "Analyzer": {
        Caller.OPERATOR: "CreateTask RegisterSentinels GetResult ListTasks DescribeTask GetLedger",
        Caller.SHUFFLER: "GetTask DeliverBatch",
    },
    "Shuffler": {
        Caller.ANYONE: "FetchTask Submit SubmitBulk GetBatchStatus GetInclusion",
        Caller.TOKEN_HOLDER: "GetBatchProgress CloseBatch",
    },
    "UserAgent": {Caller.ANYONE: "Contribute GetReceipt"},
}


def test_every_method_has_the_expected_caller() -> None:
    """The rules are written a second time here, and cover every method of the services."""
    expected = {
        f"/shuffledp.v1.{service}/{name}": caller
        for service, rules in _RULES.items()
        for caller, names in rules.items()
        for name in names.split()
    }

    methods = {
        f"/{service.full_name}/{method.name}"
        for module in (analyzer_pb2, shuffler_pb2, user_agent_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert methods == set(expected)
    assert expected == {
        method: call.caller for method, call in CALLS.items() if not method.startswith("/grpc.")
    }


def test_a_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never by ==, which stops at the first difference."""
    honest, compared = secrets.compare_digest, list[bytes]()

    def noted(shown: bytes, own: bytes) -> bool:
        compared.append(shown)
        return honest(shown, own)

    monkeypatch.setattr(secrets, "compare_digest", noted)
    assert _TOKEN.matches(_SECRET)
    assert not _TOKEN.matches(f"{_SECRET[:-1]}f")
    assert 2 == len(compared)
