"""A party's signing identity: made on first start or before it, long-lived, renewed by hand."""

from typing import Final

from common.crypto.signing import SigningIdentity
from common.runtime.state_directory import StateDirectory

_PRIVATE_FILE: Final = "identity.key"
_PUBLIC_FILE: Final = "identity.pub"


def load_identity(state: StateDirectory) -> SigningIdentity:
    """
    Read a party's identity, make it if there is none, and publish what others pin.

    Raises:
        SettingsError: Its file is open to others, damaged, or sealed under another state key.
        StorageError: The disk does not keep it.
    """
    raw = state.secret(_PRIVATE_FILE, lambda: SigningIdentity.generate().private_bytes())
    identity = SigningIdentity(raw)
    state.publish(_PUBLIC_FILE, identity.public_identity().raw.hex())
    return identity


def renew_identity(state: StateDirectory) -> SigningIdentity:
    """
    Destroy a party's identity and make another. Run by an operator, while no service holds `state`.

    Whoever pins the old one takes nothing that the new one signs.

    Raises:
        SettingsError, StorageError: As `load_identity`.
    """
    state.destroy(_PRIVATE_FILE)
    return load_identity(state)
