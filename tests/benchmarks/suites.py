"""
Sealing and opening in each suite, on one core, as a ratio of the default suite's rate.

Run as `python -m tests.benchmarks.suites`.
"""

from functools import partial
from typing import Final

from common.crypto.hpke import HpkePrivateKey, SealContext, report_context
from common.crypto.hpke_pool import open_each, seal_each
from common.crypto.suites import DEFAULT_SUITE, SUITES
from common.task_digest import TaskDigest
from tests.benchmarks.measure import best_of, line

_REPORTS: Final = 5_000
_REPORT_BYTES: Final = 12
_RUNS: Final = 3


def _seal(key: HpkePrivateKey, plain: bytes, context: SealContext) -> None:
    seal_each(key.public_key(), plain, _REPORT_BYTES, context)


def _open(key: HpkePrivateKey, sealed: bytes, context: SealContext) -> None:
    open_each(key, sealed, len(sealed) // _REPORTS, context)


def main() -> None:
    """Measure every suite within the same minute."""
    context = report_context(TaskDigest(bytes(32)))
    plain = bytes(_REPORTS * _REPORT_BYTES)
    rates: dict[str, tuple[float, float]] = {}
    for suite in SUITES:
        key = HpkePrivateKey.generate(suite)
        sealed = seal_each(key.public_key(), plain, _REPORT_BYTES, context)
        if open_each(key, sealed, len(sealed) // _REPORTS, context).plaintexts != plain:
            raise RuntimeError("a report did not open")
        rates[suite] = (
            _REPORTS / best_of(_RUNS, partial(_seal, key, plain, context)),
            _REPORTS / best_of(_RUNS, partial(_open, key, sealed, context)),
        )
    for suite, (sealing, opening) in rates.items():
        line(
            "suites",
            suite=suite,
            seals_per_second=sealing,
            opens_per_second=opening,
            sealing_over_default=sealing / rates[DEFAULT_SUITE][0],
            opening_over_default=opening / rates[DEFAULT_SUITE][1],
        )


if __name__ == "__main__":
    main()
