from typing import Final

import pytest

from common.crypto.tokens import OperatorToken
from common.errors import CallerError, CredentialError
from common.runtime.access import (
    CALLS,
    Caller,
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
    ],
)
def test_certificate_and_token_decide_who_may_call(
    allowed: Caller, name: str | None, shown: str | None, refusal: type[Exception] | None
) -> None:
    """Without certificates their rule is waived, the token's never."""
    names = None if name is None else frozenset({name})
    if refusal is None:
        check_caller(allowed, names, shown, _TOKEN)
        return
    with pytest.raises(refusal):
        check_caller(allowed, names, shown, _TOKEN)


def test_a_certificate_that_names_nobody_is_nobody() -> None:
    """It is another thing than a connection that has no certificates."""
    with pytest.raises(CallerError, match="names nobody"):
        check_caller(Caller.SHUFFLER, frozenset(), None, None)
    with pytest.raises(CredentialError, match="no operator"):
        check_caller(Caller.TOKEN_HOLDER, None, "", None)


def test_a_host_that_is_called_shuffler_does_not_make_one() -> None:
    """The common name counts; alternative names only where there is none."""
    names = {"x509_subject_alternative_name": [b"shuffler", b"localhost"]}

    assert frozenset({"shuffler", "localhost"}) == names_in(names)
    assert frozenset({"analyzer"}) == names_in({**names, "x509_common_name": [b"analyzer"]})
    assert frozenset() == names_in({})


@pytest.mark.parametrize(
    ("metadata", "token"),
    [
        (None, None),
        ((("other", "x"),), None),
        ((("authorization", "Bearer secret"),), "secret"),
        ((("authorization", "secret"),), None),
        ((("authorization", ""),), None),
        ((("authorization", "Bearer "),), ""),
    ],
)
def test_a_token_stands_behind_the_word_bearer(
    metadata: tuple[tuple[str, str], ...] | None, token: str | None
) -> None:
    """Anything else is no token."""
    assert token == bearer_token(metadata)


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


def test_who_may_make_each_call() -> None:
    """Written here a second time, apart from what the services go by."""
    expected = {
        f"/shuffledp.v1.{service}/{name}": caller
        for service, rules in _RULES.items()
        for caller, names in rules.items()
        for name in names.split()
    }

    assert expected == {
        method: call.caller for method, call in CALLS.items() if not method.startswith("/grpc.")
    }


class _Compared(bytes):
    """Notices who compares it byte by byte, in a time that tells how much of it was right."""

    noticed = False

    def __eq__(self, other: object) -> bool:
        type(self).noticed = True
        return bytes(self) == other

    __hash__ = bytes.__hash__


class _Shown(str):
    """A token that somebody shows."""

    __slots__ = ()

    def encode(self, *_: str, **__: str) -> bytes:
        """Give bytes that notice."""
        return _Compared(super().encode())


def test_a_token_is_compared_in_a_time_that_tells_nothing() -> None:
    """Not by the comparison of bytes, which ends where they differ."""
    assert _TOKEN.matches(_Shown(_SECRET))
    assert not _TOKEN.matches(_Shown(f"{_SECRET[:-1]}f"))
    assert not _Compared.noticed


def test_every_method_has_its_row() -> None:
    """A new method is refused to everybody until somebody has decided who may call it."""
    methods = {
        f"/{service.full_name}/{method.name}"
        for module in (analyzer_pb2, shuffler_pb2, user_agent_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert methods == {method for method in CALLS if not method.startswith("/grpc.")}
