"""
Who is believed to be whom: every kind of caller, with every certificate and every token.

The rules are written out here, apart from what the services go by.
"""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from common.errors import CallerError, CredentialError
from common.operator_token import OperatorToken
from common.runtime.callers import check_caller, names_in
from common.runtime.calls import Caller
from common.user_token import TOKEN_BYTES
from deploy.audit.checks import Checks
from user_agent.token_file import TokenFile

_NAMES: Final = (
    None,
    frozenset[str](),
    frozenset({"shuffler"}),
    frozenset({"operator"}),
    frozenset({"analyzer"}),
    frozenset({"not-the-operator", "the-shuffler"}),
)
"""What certificates say; None where there are none."""


def check_credentials(checks: Checks) -> None:
    """Try them all; tokens come from the operating system."""
    text, stranger = OperatorToken.generate(), OperatorToken.generate().decode()
    right = text.decode()
    shown = (None, "", right, right[:-1], right + "0", right.upper() + " ", stranger)
    for caller, names, token, own in itertools.product(
        Caller, _NAMES, shown, (None, OperatorToken(text))
    ):
        named = names is None or caller.value in names
        held = own is not None and token == right
        may = {
            Caller.ANYONE: True,
            Caller.SHUFFLER: named,
            Caller.OPERATOR: named and held,
            Caller.TOKEN_HOLDER: held,
        }[caller]
        checks.must(
            "whoever shows what a call asks for may make it, and nobody else",
            _let_in(caller, names, token, own) is may,
        )
    _check_names(checks)
    _check_token_file(checks)


def _let_in(
    caller: Caller, names: frozenset[str] | None, token: str | None, own: OperatorToken | None
) -> bool:
    try:
        check_caller(caller, names, token, own)
    except (CallerError, CredentialError):
        return False
    return True


def _check_names(checks: Checks) -> None:
    """A host may be called anything: beside a common name the alternative names name nobody."""
    common, alternative = {"x509_common_name": [b"analyzer"]}, [b"localhost", b"shuffler"]
    both = {**common, "x509_subject_alternative_name": alternative}
    checks.must(
        "a certificate names the party of its common name, and no host",
        names_in(both) == names_in(common) == {"analyzer"},
    )
    checks.must("a certificate without names names nobody", not names_in({}))


def _check_token_file(checks: Checks) -> None:
    """A token that is shown for two people links them."""
    people = {name: bytes([place]) * TOKEN_BYTES for place, name in enumerate(("", "a", "a b"))}
    lines = [f"{token.hex()} {name}" for name, token in people.items()]
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        path = Path(folder) / "tokens"
        for order in itertools.permutations(lines):
            path.write_text("\n".join(order), encoding="utf-8")
            found = {name: TokenFile(path).token(name) for name in (*people, "b", "A")}
            checks.must(
                "a token is shown for the person whose name stands behind it, and for nobody else",
                found == people | {"b": b"", "A": b""},
            )
