import random
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

from common.crypto.hpke import SUITES, HpkePrivateKey
from common.crypto.signing import SigningIdentity, TokenIssuer
from common.runtime.access import OperatorToken
from shuffler.storage.group import BatchKey

_DRAWN: Final = 400


def _made(name: str) -> Callable[[], bytes]:
    makers: dict[str, Callable[[], bytes]] = {
        "identity": lambda: SigningIdentity.generate().private_bytes(),
        "batch key": BatchKey.generate,
        "issuer": TokenIssuer.generate,
        "operator's token": lambda: bytes.fromhex(OperatorToken.generate().decode()),
        "user's token": TokenIssuer(bytes(32)).issue,
    }
    for suite in SUITES:
        makers[suite] = lambda suite=suite: HpkePrivateKey.generate(suite).private_bytes()  # type: ignore[misc]
        makers[f"public {suite}"] = (
            lambda suite=suite: (  # type: ignore[misc]
                HpkePrivateKey.generate(suite).public_key().raw[-32:]
            )
        )
    return makers[name]


@pytest.mark.parametrize(
    "name",
    [
        *("identity", "batch key", "issuer", "operator's token", "user's token"),
        *SUITES,
        *(f"public {suite}" for suite in SUITES),
    ],
)
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
        made.append(_made(name)())
    rows = np.frombuffer(b"".join(made), dtype=np.uint8).reshape(_DRAWN, -1)[:, :32]
    agreeing = [(rows[:, one] == rows[:, other]).sum() for one in range(32) for other in range(one)]

    assert _DRAWN == len(set(made))
    assert all(len(np.unique(column)) > 50 for column in rows.T)
    assert max(agreeing) <= 20
