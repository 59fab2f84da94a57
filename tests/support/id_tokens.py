"""An identity provider: its keys, and ID tokens by them."""

import json
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

PROVIDER: Final = "https://id.example"
AUDIENCE: Final = "shuffledp"
NOW: Final = 1_000_000_000.0
KEYS: Final[dict[str, Any]] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
"""Private keys, by algorithm, which is also the key id."""
_WRITERS: Final[dict[str, Any]] = {
    "RS256": RSAAlgorithm,
    "ES256": ECAlgorithm,
    "EdDSA": OKPAlgorithm,
}
KEY_SET: Final = json.dumps(
    {
        "keys": [
            {**_WRITERS[name].to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}
            for name, key in KEYS.items()
        ]
    }
).encode()


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token; a change to None removes one."""
    usual = {
        "iss": PROVIDER,
        "aud": AUDIENCE,
        "sub": "248289761001",
        "iat": NOW - 10,
        "exp": NOW + 3600,
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


_HEADERS: Final = {"typ", "kid", "crit", "b64", "x"}


def signed(**changes: Any) -> str:
    """Sign a valid token, with changes to its claims and headers; `algorithm` names the key."""
    algorithm = changes.pop("algorithm", "RS256")
    headers = {"kid": algorithm} | {n: v for n, v in changes.items() if n in _HEADERS}
    body = claims(**{name: v for name, v in changes.items() if name not in _HEADERS})
    raw = json.dumps(body).encode()
    return jwt.PyJWS().encode(raw, KEYS[algorithm], algorithm, headers)
