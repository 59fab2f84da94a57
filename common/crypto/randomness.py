"""
Cryptographically secure randomness.

Every function that draws takes a `numpy.random.Generator`: `secure_generator()` in production,
`numpy.random.default_rng(seed)` in tests and simulations. Random decisions use bounded integers,
which numpy draws exactly by rejection, and never floats.
"""

import os
import secrets
import weakref
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from randomgen import ChaCha

from shuffledp.common.crypto.secret import Secret

SEED_BYTES = 32
"""Length of a seed, and of a ChaCha20 key."""
_LABEL = b"shuffledp v1 part"


class _SecureGenerator(Secret, np.random.Generator):
    """A generator of which no copy can repeat the draws."""

    def spawn(self, n_children: int) -> NoReturn:
        """Raise TypeError: a child would be an ordinary generator."""
        raise TypeError(f"create {n_children} generators with secure_generator() instead")


class _SecureChaCha(Secret, ChaCha):  # type: ignore[misc]  # randomgen publishes no stubs
    """Its bit generator."""


_living: weakref.WeakSet[_SecureGenerator] = weakref.WeakSet()


def _bits(key: bytes) -> _SecureChaCha:
    return _SecureChaCha(key=int.from_bytes(key, "little"), rounds=20)


def new_seed() -> bytes:
    """Draw a seed from the operating system."""
    return secrets.token_bytes(SEED_BYTES)


def _rekey_after_fork() -> None:
    """Re-key every generator of a forked child, so that it never repeats its parent's draws."""
    try:
        for generator in list(_living):
            generator.bit_generator.state = _bits(new_seed()).state
    except BaseException:  # noqa: BLE001  # Python would print any error and keep the old key
        os._exit(os.EX_SOFTWARE)


os.register_at_fork(after_in_child=_rekey_after_fork)


def secure_generator() -> np.random.Generator:
    """
    Create a ChaCha20 generator with a 256-bit key from the operating system.

    Only `server.py` and `deploy/` create one, and pass it down. It cannot be pickled or copied, and
    is re-keyed in a forked child, so that no two processes share a stream.

    Cost: about 1.4 times numpy's default generator for a permutation.
    Source: RFC 8439; the stream equals that of the cipher, block for block.
    """
    generator = _SecureGenerator(_bits(new_seed()))
    _living.add(generator)
    return generator


def seeded_generator(seed: bytes, stage: str, part: int) -> np.random.Generator:
    """
    Create the ChaCha20 generator of one part of a batch: the same each time the part is computed.

    An engine computes a part again after its worker died, when others may have read its first
    output. With other draws, reports would be lost and doubled. Keys are derived by HKDF-SHA256
    [RFC5869] from the batch's secret seed, the stage and the part's number, so that each part has
    its own stream. The generator cannot be pickled or copied.
    """
    info = b"".join((_LABEL, len(stage).to_bytes(1), stage.encode(), part.to_bytes(8)))
    return _SecureGenerator(_bits(HKDF(SHA256(), SEED_BYTES, None, info).derive(seed)))
