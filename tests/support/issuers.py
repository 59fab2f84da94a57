"""An issuer's core on real files, people with secrets, and their pending tokens."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.privacy_tokens import PendingToken, TokenKey, token_challenge
from shuffledp.common.task_digest import TaskDigest
from shuffledp.issuer.core import Issuance
from shuffledp.issuer.entitlements import PeopleList
from shuffledp.issuer.issuance_store import IssuanceStore
from shuffledp.issuer.metrics import TokenOutcome
from shuffledp.issuer.token_cap import TokenCap
from shuffledp.issuer.token_keys import TokenKeys
from tests.support.faults import Faults, FaultyState, Life, add_boundaries

SECRETS: Final = {name: sha256(name.encode()).digest() for name in ("Ada", "Bo Li")}
"""Each person's credential."""
ISSUER_NAME: Final = "issuer.example"
CHALLENGE: Final = token_challenge(TaskDigest(bytes(32)), ISSUER_NAME)
DAY: Final = 86_400


def people_file(path: Path) -> Path:
    """Write the list of the people with secrets."""
    lines = (f"{name} {sha256(secret).hexdigest()}\n" for name, secret in SECRETS.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def pending(key: TokenKey, seed: int) -> PendingToken:
    """Draw a pending token."""
    return PendingToken.draw(key, CHALLENGE, np.random.default_rng(seed).bytes)


class IssuerCore:
    """An issuer without a network, whose files are boundaries at which it may crash."""

    def __init__(
        self, path: Path, faults: Faults | None = None, cap: tuple[int, int] | None = None
    ) -> None:
        """`cap` is the number of tokens per person and the days of a period."""
        self.path = path
        self.clock = ManualClock()
        self.faults = faults or Faults()
        self.counts: Counter[TokenOutcome] = Counter()
        self.cap = cap or (None, None)
        self.signers = ThreadPoolExecutor(2)
        people_file(path / "people.txt")

    def start(self) -> None:
        """Start, or restart on the same files."""
        life = Life("issuer", self.faults)
        state = FaultyState.of(self.path / "issuer", life)
        self.keys = TokenKeys(state)
        self.store = IssuanceStore(self.path / "issuer.sqlite")
        add_boundaries(self.store, life)
        self.issuance = Issuance(
            keys=self.keys,
            store=self.store,
            entitlements=PeopleList(self.path / "people.txt"),
            cap=TokenCap(state, *self.cap),
            signers=self.signers,
            clock=self.clock,
            record=lambda outcome: self.counts.update([outcome]),
        )

    async def create_key(self, population: str = "", days: int = 1) -> TokenKey:
        """Create a key that ends in a day."""
        return await self.issuance.create_key(int(self.clock.now()) + days * DAY, population)

    async def issue(self, token: PendingToken, person: str = "Ada") -> bytes:
        """Request a blind signature."""
        return await self.issuance.issue(token.key.key_id, token.blinded(), SECRETS[person])

    async def issue_bulk(self, *asked: tuple[PendingToken, str]) -> list[bytes]:
        """Request several people's blind signatures in one call."""
        requests = [(token.key.key_id, token.blinded(), SECRETS[one]) for token, one in asked]
        return await self.issuance.issue_bulk(requests)

    def stop(self) -> None:
        """Close the database."""
        self.store.close()
