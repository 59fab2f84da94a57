"""Key stores, key files and receipts for tests."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shuffledp.audit.harness.party_cores import SCHEDULE
from shuffledp.common.crypto import signing
from shuffledp.common.crypto.hpke import HpkePrivateKey, HpkePublicKey
from shuffledp.common.crypto.signing import KeyUse, PublicIdentity, SigningIdentity
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task_digest import TaskDigest

SHUFFLER: Final = SigningIdentity(bytes(31) + b"\x01")
"""The identity of shufflers without a state directory."""


def signed_key(
    key: HpkePublicKey, identity: SigningIdentity = SHUFFLER, use: KeyUse = KeyUse.ENVELOPES
) -> bytes:
    """Return a shuffler's signed key, by default for envelopes, valid without end."""
    return signing.signed_key(identity, use, key, MAX_UNIX_TIME)


def active_key(path: Path) -> HpkePrivateKey:
    """Read the active key of the default suite from the state directory of another process."""
    store = KeyStore(StateDirectory.open(path), SCHEDULE)
    public = store.public_key()
    return store.private_key(public.suite, public.raw, whose="key")


def key_files(path: Path) -> list[str]:
    """List the files of HPKE keys in a state directory."""
    return sorted(file.name for file in path.glob("hpke-*.key"))


def is_valid_bulk_receipt(
    identity: PublicIdentity, digest: TaskDigest, stored: Iterable[bytes], receipt: bytes
) -> bool:
    """Check that a receipt acknowledges exactly these envelopes, in this order."""
    hashes = b"".join(hashlib.sha256(envelope).digest() for envelope in stored)
    message = digest + hashlib.sha256(hashes).digest()
    return identity.is_valid_signature(b"shuffledp v1 bulk receipt", message, receipt)
