"""Measure how many sealed reports one core of this machine opens per second."""

import time
from typing import Final

from common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey, report_context
from common.task_digest import DIGEST_BYTES, TaskDigest

_ROUND: Final = 500
"""Reports opened between two looks at the clock."""
_PLAIN_BYTES: Final = 12


def measure_opening_rate(seconds: float = 1.0) -> float:
    """Open one sealed report of the default suite again and again; return reports per second."""
    key, context = (
        HpkePrivateKey.generate(DEFAULT_SUITE),
        report_context(TaskDigest(bytes(DIGEST_BYTES))),
    )
    sealed, opened = key.public_key().sealer(context)(bytes(_PLAIN_BYTES)), key.opener(context)
    count, started = 0, time.process_time()
    while (spent := time.process_time() - started) < seconds:
        for _ in range(_ROUND):
            opened(sealed)
        count += _ROUND
    return count / spent
