"""Key stores of parties in this process."""

from typing import Final

from common.crypto.hpke import HpkePrivateKey
from common.crypto.key_ring import DAY, Schedule
from common.runtime.key_store import KeyStore
from common.runtime.state_directory import StateDirectory

SCHEDULE: Final = Schedule(lifetime=90 * DAY, overlap=2 * DAY, retention=30 * DAY)


def store_holding(state: StateDirectory, *keys: HpkePrivateKey, now: float = 0.0) -> KeyStore:
    """Return a key store that holds these keys beside its own."""
    for key in keys:
        state.secret(f"hpke-{key.public_key().key_id.hex()}.key", key.private_bytes)
    store = KeyStore(state, SCHEDULE)
    store.rotate(now)
    return store
