import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pytest

from common.crypto.hpke import SUITES, HpkePrivateKey
from common.crypto.signing import SigningIdentity, TokenIssuer
from common.runtime.access import OperatorToken
from shuffler.storage.group import BatchKey

_DRAWN: Final = 400


def _key(suite: str, *, public: bool = False) -> bytes:
    key = HpkePrivateKey.generate(suite)
    return key.public_key().raw[-32:] if public else key.private_bytes()


_MAKERS: Final[dict[str, Callable[[], bytes]]] = {
    "identity": lambda: SigningIdentity.generate().private_bytes(),
    "batch key": BatchKey.generate,
    "issuer": TokenIssuer.generate,
    "operator's token": lambda: bytes.fromhex(OperatorToken.generate().decode()),
    "user's token": TokenIssuer(bytes(32)).issue,
    **{suite: partial(_key, suite) for suite in SUITES},
    **{f"public {suite}": partial(_key, suite, public=True) for suite in SUITES},
}


@pytest.mark.parametrize("name", _MAKERS)
def test_every_byte_is_drawn_while_all_clocks_stand(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    All 32 bytes of 400 secrets vary independently.

    Two columns of 400 random bytes agree in more than 20 places with probability below 1e-15.
    """
    for clock in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
        monkeypatch.setattr(time, clock, lambda: 1)
    made = []
    for _ in range(_DRAWN):
        random.seed(1)
        made.append(_MAKERS[name]())
    rows = np.frombuffer(b"".join(made), dtype=np.uint8).reshape(_DRAWN, -1)[:, :32]
    agreeing = [(rows[:, one] == rows[:, other]).sum() for one in range(32) for other in range(one)]

    assert _DRAWN == len(set(made))
    assert all(len(np.unique(column)) > 50 for column in rows.T)
    assert max(agreeing) <= 20
