"""
What watching the shuffler costs: the salted tree over ten million reports, and a receipt.

Hashing is compared with SHA-256 of the same bytes in one piece. Run as
`python -m tests.benchmarks.watching`.
"""

import hashlib

import numpy as np

from common.crypto.merkle import SALT_BYTES, Tree, leaves_of, salt_all, sorted_leaves
from common.crypto.receipt import receipt_holds, sign_receipt
from common.crypto.signing import SigningIdentity
from common.task_digest import TaskDigest
from tests.benchmarks.measure import best_of, line

_HASHED = 1_000_000
_LEAVES = 10_000_000
_SIZE = 60
_RECEIPTS = 1000


def main() -> None:
    """Measure leaves, salting, sorting, the tree, and signatures."""
    rng = np.random.default_rng(1)
    sealed = rng.bytes(_HASHED * _SIZE)
    one = best_of(3, lambda: hashlib.sha256(sealed).digest())
    each = best_of(3, lambda: leaves_of(sealed, _SIZE))
    line("leaves", reports=_HASHED, s=each, over_one_piece=each / one)

    collected = bytearray(rng.bytes(32 * _LEAVES))
    salt = best_of(1, lambda: salt_all(collected, bytes(SALT_BYTES)))
    sort = best_of(1, lambda: sorted_leaves(collected))
    rows = sorted_leaves(collected)
    tree = best_of(3, lambda: Tree(rows))
    line("prefix tree", reports=_LEAVES, salt_s=salt, sort_s=sort, tree_s=tree)

    identity, digest = SigningIdentity.generate(), TaskDigest(bytes(32))
    public, envelope = identity.public_identity(), bytes(200)
    receipt = sign_receipt(identity, digest, envelope)
    sign = best_of(3, lambda: [sign_receipt(identity, digest, envelope) for _ in range(_RECEIPTS)])
    verify = best_of(
        3, lambda: [receipt_holds(public, digest, envelope, receipt) for _ in range(_RECEIPTS)]
    )
    line("receipt", sign_us=1e6 * sign / _RECEIPTS, verify_us=1e6 * verify / _RECEIPTS)


if __name__ == "__main__":
    main()
