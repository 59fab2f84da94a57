"""
The analyzer's open-and-count against a bare `Suite.decrypt` loop, on one core and on two.

The limit beneath both is the rate of raw X25519 exchanges, which is shown beside them. Run as
`python -m tests.benchmarks.opening`.
"""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from analyzer.intake import take_in
from common.crypto.hpke import report_context
from common.crypto.hpke_pool import HpkePool
from common.mechanisms.registry import mechanism_of
from tests.benchmarks.measure import best_of, line
from tests.support.tasks import published

_REPORTS = 40_000
_CHUNK = 1000
_RUNS = 3


def main() -> None:
    """Measure one worker, then two, each beside a bare loop of the same moment."""
    case = published(domain_size=915, buckets=53)
    digest, mechanism = case.signed.digest(), mechanism_of(case.task)
    context = report_context(digest)
    seal = case.analyzer_key.public_key().sealer(context)
    sealed = [seal(r.tobytes()) for r in mechanism.dummies(_REPORTS, np.random.default_rng(1))]
    chunks = [b"".join(sealed[at : at + _CHUNK]) for at in range(0, _REPORTS, _CHUNK)]
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(case.analyzer_key.private_bytes())
    public, info = private.public_key(), context.info()
    exchange = best_of(_RUNS, lambda: [private.exchange(public) for _ in range(_REPORTS // 4)])
    for processes in (1, 2):
        pool = HpkePool(processes)

        def count(pool: HpkePool = pool) -> None:
            intake = take_in(chunks, case.task, digest, mechanism, pool=pool, key=case.analyzer_key)
            if intake.counted != _REPORTS:
                raise RuntimeError("a report was not counted")

        count()  # start the workers
        bare = best_of(_RUNS, lambda: [suite.decrypt(one, private, info) for one in sealed])
        counted = best_of(_RUNS, count)
        bare = min(bare, best_of(1, lambda: [suite.decrypt(o, private, info) for o in sealed]))
        pool.close()
        line(
            "opening",
            processes=processes,
            reports=_REPORTS,
            bare_decrypts_per_second=_REPORTS / bare,
            rate_over_bare_loop=bare / counted,
            rate_over_raw_x25519=4 * exchange / counted,
        )


if __name__ == "__main__":
    main()
