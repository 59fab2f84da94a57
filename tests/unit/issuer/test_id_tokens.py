import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import CredentialError, SettingsError
from shuffledp.issuer.id_tokens import IdTokens, parse_key_set, verified_subject
from tests.support.id_tokens import AUDIENCE, KEY_SET, KEYS, NOW, PROVIDER, claims, signed
from tests.support.tables import table

_SET: Final = parse_key_set(KEY_SET)


def _subject(token: str | bytes, now: float = NOW) -> str:
    raw = token.encode() if isinstance(token, str) else token
    return verified_subject(raw, _SET, issuer=PROVIDER, audience=AUDIENCE, now=now)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_names_its_subject(algorithm: str) -> None:
    """By RSA, an elliptic curve or Ed25519; the audience may be a list of one."""
    assert "248289761001" == _subject(signed(algorithm=algorithm))
    assert "248289761001" == _subject(signed(algorithm=algorithm, aud=[AUDIENCE]))


_NO_TIMES: Final[tuple[Any, ...]] = ("9999999999", True, [], float("inf"), float("nan"))


@table(
    ("changes", "message"),
    [
        ({"exp": NOW - 60}, "expired"),
        ({"iat": NOW + 61}, "not valid yet"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"aud": "another"}, "another issuer or audience"),
        ({"aud": [AUDIENCE, "another"]}, "also for another audience"),
        ({"aud": []}, "another issuer or audience"),
        ({"iss": "https://other.example"}, "another issuer or audience"),
        ({"iss": f"{PROVIDER}/"}, "another issuer or audience"),
        ({"iss": [PROVIDER]}, "malformed"),
        *(({name: None}, "malformed") for name in ("exp", "iat", "aud", "iss", "sub")),
        *(({"exp": bad}, "claim exp") for bad in _NO_TIMES),
        ({"iat": "0"}, "claim iat"),
        ({"nbf": "0"}, "claim nbf"),
        ({"sub": ""}, "1 to 255 characters"),
        ({"sub": "x" * 256}, "1 to 255 characters"),
        ({"sub": 7}, "malformed"),
    ],
)
def test_a_token_whose_claims_break_a_rule_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    """None removes a claim. The message quotes no claim."""
    with pytest.raises(CredentialError, match=message) as caught:
        _subject(signed(**changes))
    assert "2482" not in str(caught.value)


@pytest.mark.parametrize("offset", [-59.0, 0.0, 3659.0])
def test_clocks_may_differ_by_a_minute(offset: float) -> None:
    """The token of an hour is accepted a minute before its start and after its end."""
    assert _subject(signed(iat=NOW, nbf=NOW, exp=NOW + 3600), NOW + offset)


def _with_header(token: str, header: Mapping[str, Any]) -> str:
    encoded = jwt.utils.base64url_encode(json.dumps(header).encode()).decode()
    return ".".join((encoded, *token.split(".")[1:]))


def _confused(kid: str) -> str:
    """Sign with a public key as if it were a symmetric one."""
    public = (
        KEYS["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    parts = [json.dumps({"alg": "HS256", "kid": kid}).encode(), json.dumps(claims()).encode()]
    body = b".".join(jwt.utils.base64url_encode(part) for part in parts)
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(body, public)
    return f"{body.decode()}.{jwt.utils.base64url_encode(mac).decode()}"


_GOOD: Final = signed()
_FORGED: Final = {
    "none": _with_header(_GOOD, {"alg": "none", "kid": "RS256"}).rpartition(".")[0] + ".",
    "none with a signature": _with_header(_GOOD, {"alg": "none", "kid": "RS256"}),
    "HS256 under the public key": _confused("RS256"),
    "the algorithm of another key": _with_header(_GOOD, {"alg": "ES256", "kid": "RS256"}),
    "another key's id": _with_header(_GOOD, {"alg": "ES256", "kid": "ES256"}),
    "PS256 by the same key": jwt.encode(
        claims(), KEYS["RS256"], algorithm="PS256", headers={"kid": "RS256"}
    ),
    "no key id": jwt.encode(claims(), KEYS["RS256"], algorithm="RS256"),
    "an unknown key id": signed(kid="other"),
    "a key id that is no text": _with_header(_GOOD, {"alg": "RS256", "kid": 3}),
    "a stranger's key": jwt.encode(
        claims(), rsa.generate_private_key(65537, 2048), algorithm="RS256", headers={"kid": "RS256"}
    ),
    "the key in the header": _with_header(_GOOD, {"alg": "RS256", "jwk": {}, "jku": "x"}),
    "another payload": ".".join(
        (_GOOD.split(".")[0], signed(sub="mallory").split(".")[1], _GOOD.split(".")[2])
    ),
    "an access token": signed(typ="at+jwt"),
    "a critical extension": signed(crit=["x"], x=1),
    "a detached payload": signed(b64=False, crit=["b64"]),
    "two parts": _GOOD.rpartition(".")[0],
    "nothing": "",
    "an encrypted token": "a.b.c.d.e",
    "deep": jwt.utils.base64url_encode(b"[" * 5000).decode() + ".e30.AA",
    "deep claims": "e30." + jwt.utils.base64url_encode(b"[" * 5000).decode() + ".AA",
    "a list": "W10.W10.AA",
    "not text": "é.é.é",
}


@table("forged", _FORGED)
def test_a_forged_token_is_refused(forged: str) -> None:
    """By its signature, algorithm, key or form."""
    with pytest.raises(CredentialError):
        _subject(_FORGED[forged])


def test_any_changed_byte_is_refused() -> None:
    """Of the header, claims and signature."""
    for place in range(0, len(_GOOD), 7):
        changed = bytearray(_GOOD.encode())
        changed[place] ^= 1
        with pytest.raises(CredentialError):
            _subject(bytes(changed))


async def test_keys_rotate_without_a_restart(tmp_path: Path) -> None:
    """A new key is accepted and a removed one refused once the file has changed."""
    file = tmp_path / "keys.json"
    file.write_bytes(KEY_SET)
    tokens = IdTokens(file, issuer=PROVIDER, audience=AUDIENCE, clock=ManualClock(NOW))
    assert await tokens.person(_GOOD.encode())

    new = ed25519.Ed25519PrivateKey.generate()
    listed = [{**OKPAlgorithm.to_jwk(new.public_key(), as_dict=True), "kid": "new"}]
    file.write_text(json.dumps({"keys": listed}), encoding="utf-8")
    by_new = jwt.encode(claims(), new, algorithm="EdDSA", headers={"kid": "new"})
    assert await tokens.person(by_new.encode())
    with pytest.raises(CredentialError, match="key set"):
        await tokens.person(_GOOD.encode())


def _jwk(**changes: Any) -> dict[str, Any]:
    found = RSAAlgorithm.to_jwk(KEYS["RS256"].public_key(), as_dict=True) | {"kid": "k"} | changes
    return {name: value for name, value in found.items() if value is not None}


_P384: Final = ECAlgorithm.to_jwk(
    ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True
)


@table(
    "key",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"},
        {**_P384, "kid": "k"},
        {**_P384, "kid": "k", "alg": "ES256"},
        _jwk(kid=None),
        _jwk(kid=3),
        _jwk(use="enc"),
        _jwk(alg="HS256"),
        _jwk(alg="PS256"),
        _jwk(alg=["RS256"]),
        _jwk(n=None),
        _jwk(n="!"),
        _jwk(kty=["RSA"]),
        {},
        "text",
    ],
)
def test_only_public_keys_for_signatures_are_usable(key: Any) -> None:
    """Others are ignored; a set without a usable one is refused."""
    with pytest.raises(SettingsError, match="no usable key"):
        parse_key_set(json.dumps({"keys": [key]}).encode())
    assert {"RS256", "k"} == parse_key_set(
        json.dumps({"keys": [key, _jwk(), _jwk(kid="RS256")]}).encode()
    ).keys()


@table(
    ("raw", "message"),
    [
        (b"", "not a JSON Web Key Set"),
        (b"[]", "not a JSON Web Key Set"),
        (b"{}", "not a JSON Web Key Set"),
        (b'{"keys": 3}', "not a JSON Web Key Set"),
        (b"\xff", "not a JSON Web Key Set"),
        (b"[" * 9000, "not a JSON Web Key Set"),
        (b'{"keys": []}', "no usable key"),
        (json.dumps({"keys": [_jwk(), _jwk()]}).encode(), "two keys of one key id"),
        (json.dumps({"keys": [_jwk(d="AQAB")]}).encode(), "holds a private key"),
    ],
)
def test_a_damaged_key_set_is_refused(raw: bytes, message: str) -> None:
    """Also one that leaked the provider's private key."""
    with pytest.raises(SettingsError, match=message):
        parse_key_set(raw)


def test_a_short_rsa_key_is_not_trusted() -> None:
    """1,024 bits can be factored."""
    short = rsa.generate_private_key(65537, 1024)  # noqa: S505  # refused
    listed = {**RSAAlgorithm.to_jwk(short.public_key(), as_dict=True), "kid": "k"}
    keys = parse_key_set(json.dumps({"keys": [listed]}).encode())
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = jwt.encode(claims(), short, algorithm="RS256", headers={"kid": "k"})

    with pytest.raises(CredentialError):
        verified_subject(token.encode(), keys, issuer=PROVIDER, audience=AUDIENCE, now=NOW)
