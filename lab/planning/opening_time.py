"""Measure the time in which one core of this machine opens a sealed report."""

import time
from typing import Final

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey, report_context
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest

_ROUND: Final = 200
"""Reports opened between two looks at the clock."""
_PLAIN_BYTES: Final = 12


def measure_opening_seconds(duration: float = 1.0) -> float:
    """Open reports of the default suite for `duration` seconds; return core-seconds per report."""
    context = report_context(TaskDigest(bytes(DIGEST_BYTES)))
    key = HpkePrivateKey.generate(DEFAULT_SUITE)
    sealed, opened = key.public_key().sealer(context)(bytes(_PLAIN_BYTES)), key.opener(context)
    count, started = 0, time.process_time()
    while (spent := time.process_time() - started) < duration:
        for _ in range(_ROUND):
            opened(sealed)
        count += _ROUND
    return spent / count
