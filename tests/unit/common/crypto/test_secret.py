"""Every secret hides its bytes, and stays in its process."""

import pickle
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shuffledp.common.crypto.batch_key import BatchKey, SealingKey
from shuffledp.common.crypto.hpke import SUITES, HpkePrivateKey, fingerprint
from shuffledp.common.crypto.hpke_pool import _RawKey
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.secret import Secret
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.crypto.token_signing import OpenSslKey, TokenSigningKey
from shuffledp.common.runtime.access import OperatorToken
from shuffledp.common.runtime.state_directory import StateKey

_RAW: Final = bytes(range(32))
_HPKE: Final = [HpkePrivateKey(suite, _RAW) for suite in SUITES]
_IDENTITY: Final = SigningIdentity(_RAW)
_DER: Final = TokenSigningKey.generate()
_SIGNER: Final = TokenSigningKey(_DER)
_PUBLIC: Final = _SIGNER.token_key()
_PENDING: Final = PendingToken.draw(_PUBLIC, b"challenge", np.random.default_rng(1).bytes)
_ROWS: Final = [
    *((key, _RAW, f"HpkePrivateKey(of {fingerprint(key.public_key().raw)})") for key in _HPKE),
    (_IDENTITY, _RAW, f"SigningIdentity(of {fingerprint(_IDENTITY.public_identity().raw)})"),
    (_SIGNER, _DER[30:90], f"TokenSigningKey(of {fingerprint(_PUBLIC.der)})"),
    (OpenSslKey(_DER), _DER[30:90], "OpenSslKey(secret)"),
    (SealingKey(_RAW), _RAW, "SealingKey(secret)"),
    (BatchKey(_RAW), _RAW, "BatchKey(secret)"),
    (StateKey(_RAW, Path("state.key")), _RAW, "StateKey(secret)"),
    (OperatorToken(_RAW.hex().encode()), _RAW, "OperatorToken(secret)"),
]


@pytest.mark.parametrize(
    ("secret", "raw", "shown"), _ROWS, ids=[type(row[0]).__name__ for row in _ROWS]
)
def test_a_secret_neither_prints_nor_pickles(secret: Secret, raw: bytes, shown: str) -> None:
    """Its repr shows a fingerprint of its public half, if there is one."""
    assert shown == repr(secret) == str(secret)
    assert raw.hex() not in shown
    with pytest.raises(TypeError, match="must not be pickled"):
        pickle.dumps(secret)


def test_public_keys_print_a_fingerprint_and_can_be_sent() -> None:
    """To worker processes; a private key sent there does not print, nor does a pending token."""
    for public in (_HPKE[0].public_key(), _PUBLIC):
        assert repr(public) == repr(pickle.loads(pickle.dumps(public)))  # noqa: S301  # own
    sent = repr(_RawKey("suite", _RAW))

    assert f"HpkePublicKey({fingerprint(_HPKE[0].public_key().raw)})" == repr(_HPKE[0].public_key())
    assert f"TokenKey({fingerprint(_PUBLIC.der)})" == repr(_PUBLIC)
    assert f"PendingToken(for {fingerprint(_PUBLIC.der)})" == repr(_PENDING) == str(_PENDING)
    assert "suite" in sent
    assert repr(_RAW) not in sent
    assert _RAW.hex() not in sent
