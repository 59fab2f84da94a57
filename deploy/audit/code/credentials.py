"""
Who is believed to be whom: every kind of caller, with every certificate and every token.

The rules are written out here, apart from what the services go by. And what secrets show of
themselves: nothing where they are printed, pickled or compared.
"""

import itertools
import pickle
import secrets
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from common.crypto.hpke import HpkePrivateKey
from common.crypto.signing import SigningIdentity
from common.crypto.suites import PRIVATE_KEY_BYTES, SUITES
from common.crypto.tokens import TOKEN_BYTES, OperatorToken, TokenIssuer
from common.errors import CallerError, CredentialError
from common.runtime.access import Caller, check_caller, names_in
from common.runtime.state_directory import StateDirectory, StateKey
from common.runtime.tls import TlsIdentity
from deploy.audit.checks import Checks
from deploy.audit.raw_bytes import found, written
from shuffler.storage.batch_key import BatchKey
from user_agent.credentials import TokenFile

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
    _check_comparison(checks, OperatorToken(text), right)
    _check_shown(checks)


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


class _Watched(bytes):
    """Notices who compares it byte by byte, and so in a time that tells how much was right."""

    compared = False

    def __eq__(self, other: object) -> bool:
        type(self).compared = True
        return bytes(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = bytes.__hash__


class _Shown(str):
    """A token that somebody shows, and that is watched."""

    __slots__ = ()

    def encode(self, *_: str, **__: str) -> bytes:
        return _Watched(super().encode())

    def __eq__(self, other: object) -> bool:
        _Watched.compared = True
        return super().__eq__(other)

    __hash__ = str.__hash__


def _check_comparison(checks: Checks, token: OperatorToken, right: str) -> None:
    _Watched.compared = False
    matched = [token.matches(_Shown(one)) for one in (right, right[:-1] + "g")]
    checks.must(
        "how long a token is compared tells nothing of it",
        matched == [True, False] and not _Watched.compared,
    )


def _check_shown(checks: Checks) -> None:
    """Print and pickle each kind of secret: what is logged or handed on by accident is that."""
    raw = secrets.token_bytes(PRIVATE_KEY_BYTES)
    text = raw.hex().encode()
    pem = TlsIdentity(certificate=b"", key=raw, authority=b"")
    kept: list[object] = [SigningIdentity(raw), BatchKey(raw), StateKey(raw, Path("key"))]
    kept += [HpkePrivateKey(suite, raw) for suite in SUITES]
    shown = [*kept, OperatorToken(text), TokenIssuer(raw), pem]
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        state = StateDirectory.open(Path(folder) / "party")
        state.secret("own.key", lambda: raw)
        shown.append(state)
        key = (Path(folder) / "party.key").read_bytes()
    words = [f"{one!r} {one} {[one]}" for one in shown]
    ways = [way for one in (raw, key) for way in (*written(one), repr(one)[2:-1].encode())]
    checks.must(
        "no secret shows itself when it is printed", not found(ways, "\n".join(words).encode())
    )
    checks.must("no key is pickled by accident", not any(_pickled(one) for one in kept))


def _pickled(secret: object) -> bool:
    try:
        pickle.dumps(secret)
    except TypeError as refusal:
        return "not pickled" not in str(refusal)  # its own words, not those of a key inside of it
    return True
