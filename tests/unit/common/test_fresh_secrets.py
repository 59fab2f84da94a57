import random
import time
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.hpke import SUITES, HpkePrivateKey
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.runtime.access import OperatorToken
from shuffledp.common.runtime.state_directory import StateKey
from shuffledp.deploy.clients.issuer import draw_people
from shuffledp.shuffler.storage.group import form_group, merge_small

_DRAWN: Final = 400
_KEY: Final = BatchKey(bytes(32))
_GROUPS: Final = [form_group([bytes(76)], _KEY.private_bytes())[0]] * 2


def _key(suite: str, *, public: bool = False) -> bytes:
    key = HpkePrivateKey.generate(suite)
    return key.public_key().raw[-32:] if public else key.private_bytes()


_MAKERS: Final[dict[str, Callable[[], bytes]]] = {
    "identity": lambda: SigningIdentity.generate().private_bytes(),
    "batch key": BatchKey.generate,
    "batch key's nonce": lambda: _KEY.seal(b"")[:12],
    "state key's nonce": lambda: StateKey(bytes(32), Path()).seal_secret("", b"")[-28:-16],
    "group's number": lambda: form_group([], _KEY.private_bytes())[0].number.to_bytes(8, "big"),
    "merged group's number": lambda: merge_small(_GROUPS, _KEY)[0].number.to_bytes(8, "big"),
    "operator's token": lambda: bytes.fromhex(OperatorToken.generate().decode()),
    "people's secrets": lambda: bytes.fromhex(draw_people(["a"]).credentials.decode().split()[1]),
    **{suite: partial(_key, suite) for suite in SUITES},
    **{f"public {suite}": partial(_key, suite, public=True) for suite in SUITES},
}


@pytest.mark.parametrize("name", _MAKERS)
def test_every_byte_is_drawn_while_all_clocks_stand(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Over 400 draws all bytes (at most 32) vary independently, and every bit takes both values.

    Only the highest bit of an X25519 coordinate and of a group's number is fixed.
    Two columns of 400 random bytes agree in more than 20 places with probability below 1e-15.
    """
    for clock in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
        monkeypatch.setattr(time, clock, lambda: 1)
    made = []
    for _ in range(_DRAWN):
        random.seed(1)
        made.append(_MAKERS[name]())
    rows = np.frombuffer(b"".join(made), dtype=np.uint8).reshape(_DRAWN, -1)[:, :32]
    agreeing = [(one == other).sum() for one, other in combinations(rows.T, 2)]
    fixed = (np.ptp(np.unpackbits(rows, axis=1), axis=0) == 0).sum()

    assert _DRAWN == len(set(made))
    assert all(len(np.unique(column)) > 50 for column in rows.T)
    assert max(agreeing) <= 20
    assert fixed == ("public" in name or "number" in name)
