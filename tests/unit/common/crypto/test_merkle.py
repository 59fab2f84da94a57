import hashlib

import numpy as np
import pytest

from common.crypto.merkle import (
    BUCKET_LEAVES,
    Tree,
    bits_for,
    bucket_hash,
    leaf,
    leaves_of,
    node_hash,
    prefix_of,
    root_of,
    salt_all,
    salted,
    sorted_leaves,
    split,
)
from tests.support.leaves import SALT, some_leaves, tree_over

_SIZES = [1, 2, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 4096, 5000]


@pytest.mark.parametrize("count", _SIZES)
def test_every_leaf_leads_to_the_root(count: int) -> None:
    """For sizes around powers of two, and for one report; an empty tree has one empty bucket."""
    assert bucket_hash(b"") == tree_over([]).root
    leaves = some_leaves(count)
    tree = tree_over(leaves)

    assert bits_for(count) == tree.bits
    for own in (salted(SALT, plain) for plain in leaves):
        prefix = prefix_of(own, tree.bits)
        assert own in split(tree.bucket(prefix))
        assert tree.root == root_of(tree.bucket(prefix), prefix, tree.path(prefix))
        assert tree.bits == len(tree.path(prefix))


def test_leaves_are_sorted_as_bytes_without_repeats() -> None:
    """Trailing zero bytes count, although numpy ignores them. Also 60,000 leaves with repeats."""
    rng = np.random.default_rng(2)
    rows = [bytes(32), b"\0" * 31 + b"\1", b"\1" + bytes(31), b"\1" + bytes(31)]
    rows += [rng.integers(0, 2, 32, dtype=np.uint8).tobytes() for _ in range(500)]
    rows += [b"\xff" * 5 + bytes(27), b"\xff" * 5 + bytes(26) + b"\1"]

    found = sorted_leaves(bytearray(b"".join(rows)))
    assert sorted(set(rows)) == [row.tobytes() for row in found]
    rows = [int(number).to_bytes(32) for number in rng.integers(0, 15_000, 60_000)]
    assert b"".join(sorted(set(rows))) == sorted_leaves(bytearray(b"".join(rows))).tobytes()


def test_leaves_made_together_are_those_made_one_by_one() -> None:
    """40,000 salted leaves, more than are objects at a time; and the leaves of five reports."""
    leaves = some_leaves(40_000)
    together = bytearray(b"".join(leaves))
    salt_all(together, SALT)
    reports = [bytes([number]) * 60 for number in range(5)]

    assert [salted(SALT, leaf) for leaf in leaves] == split(bytes(together))
    assert list(map(leaf, reports)) == split(leaves_of(b"".join(reports), 60))


@pytest.mark.parametrize(
    ("count", "bits"),
    [(0, 0), (1, 0), (511, 0), (512, 1), (1023, 1), (1024, 2), (10**6, 11), (10**7, 15)],
)
def test_the_depth_follows_from_the_number_of_reports(count: int, bits: int) -> None:
    """A public rule, so that no bucket can be made small for one person."""
    assert bits == bits_for(count)
    assert bits == 0 or BUCKET_LEAVES <= count / 2**bits < 2 * BUCKET_LEAVES


def test_an_empty_bucket_has_its_place_and_copies_count_once() -> None:
    """600 leaves that all begin with a 1: the empty left bucket proves an absence."""
    leaves = [b"\xff" + number.to_bytes(31) for number in range(600)]
    tree, copied = tree_over(leaves), tree_over([*leaves, *[leaves[0]] * 1000])
    plain = Tree(sorted_leaves(bytearray(b"".join(leaves))))

    assert (1, b"", 600) == (plain.bits, plain.bucket(0), plain.largest_bucket)
    assert plain.root == root_of(b"", 0, plain.path(0))
    assert (600, 1, tree.root) == (copied.n_leaves, copied.bits, copied.root)
    changed = (leaves[1:], [*leaves, bytes(32)], [*leaves[1:], bytes(32)])
    assert 4 == len({tree.root, *(tree_over(others).root for others in changed)})


def test_the_salt_decides_root_and_bucket() -> None:
    """Without the salt, nobody can predict a report's bucket."""
    leaves, salts = some_leaves(600), [SALT, SALT[:-1] + b"\x00", bytes(32)]

    assert 3 == len({tree_over(leaves, salt).root for salt in salts})
    assert 2**3 == len(
        {tuple(prefix_of(salted(salt, leaf), 1) for salt in salts) for leaf in leaves}
    )


def test_leaf_bucket_and_node_hashes_are_separated() -> None:
    """A node shown as a bucket would prove leaves that never arrived."""
    left, right = some_leaves(2)
    plain = hashlib.sha256(left + right).digest()
    hashes = {leaf(left + right), bucket_hash(left + right), node_hash(left, right), plain}
    hashes |= {salted(left, right)}

    assert 5 == len(hashes)
    tree = tree_over(some_leaves(1024))
    [_, upper] = tree.path(0)
    lower = node_hash(bucket_hash(tree.bucket(0)), bucket_hash(tree.bucket(1)))
    assert tree.root == node_hash(lower, upper)
    # The two hashes under the root, passed off as a bucket of two leaves.
    assert tree.root != root_of(lower + upper, 0, [])
