import hashlib

import numpy as np
import pytest

from common.merkle import (
    BUCKET_LEAVES,
    MAX_BITS,
    bits_for,
    bucket_hash,
    leaf,
    leaves_of,
    node_hash,
    prefix_of,
    root_of,
    sorted_leaves,
    split,
)
from tests.support.leaves import some_leaves, tree_over

_SIZES = [1, 2, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 4096, 5000]


@pytest.mark.parametrize("count", _SIZES)
def test_every_leaf_leads_to_the_root(count: int) -> None:
    """Around powers of two, and for a single report."""
    leaves = some_leaves(count)
    tree = tree_over(leaves)

    assert bits_for(count) == tree.bits
    for own in leaves:
        prefix = prefix_of(own, tree.bits)
        assert own in split(tree.bucket(prefix))
        assert tree.root == root_of(tree.bucket(prefix), prefix, tree.path(prefix))
        assert tree.bits == len(tree.path(prefix))


def test_the_order_in_which_leaves_come_changes_nothing() -> None:
    """A root relates nothing to an order."""
    leaves = some_leaves(2000)
    mixed = [leaves[place] for place in np.random.default_rng(1).permutation(2000)]

    assert tree_over(leaves).root == tree_over(mixed).root


def test_leaves_are_sorted_as_bytes_are_zeros_and_repeats_included() -> None:
    """Zeros at any place, at the end too: numpy leaves those out when it compares."""
    rng = np.random.default_rng(2)
    rows = [bytes(32), b"\0" * 31 + b"\1", b"\1" + bytes(31), b"\1" + bytes(31)]
    rows += [rng.integers(0, 2, 32, dtype=np.uint8).tobytes() for _ in range(500)]
    rows += [b"\xff" * 5 + bytes(27), b"\xff" * 5 + bytes(26) + b"\1"]

    assert sorted(rows) == [row.tobytes() for row in sorted_leaves(bytearray(b"".join(rows)))]


@pytest.mark.parametrize(
    ("count", "bits"),
    [(0, 0), (1, 0), (511, 0), (512, 1), (1023, 1), (1024, 2), (10**6, 11), (10**7, 15)],
)
def test_the_depth_follows_from_the_number_of_reports(count: int, bits: int) -> None:
    """A public rule, so that nobody can make buckets small for one person."""
    assert bits == bits_for(count)


@pytest.mark.parametrize("count", [512, 700, 10**5, 10**9, 10**12])
def test_a_bucket_hides_a_leaf_among_256_or_more(count: int) -> None:
    """On average, and up to twice as many."""
    bits = bits_for(count)

    assert BUCKET_LEAVES <= count / 2**bits
    assert bits == MAX_BITS or count / 2**bits < 2 * BUCKET_LEAVES


def test_an_empty_bucket_has_its_place() -> None:
    """600 leaves that all begin with a 1: the left bucket is empty, and proves an absence."""
    leaves = [b"\xff" + number.to_bytes(31) for number in range(600)]
    tree = tree_over(leaves)

    assert 1 == tree.bits
    assert b"" == tree.bucket(0)
    assert tree.root == root_of(b"", 0, tree.path(0))
    assert 600 == tree.largest_bucket


def test_a_tree_over_nothing_has_a_root() -> None:
    """One empty bucket."""
    assert bucket_hash(b"") == tree_over([]).root


def test_one_bucket_or_one_leaf_more_is_another_root() -> None:
    """So a batch to which a report was added, or from which one was taken, shows."""
    leaves = some_leaves(600)
    roots = {tree_over(leaves).root, tree_over(leaves[1:]).root}
    roots |= {tree_over([*leaves, leaves[0]]).root, tree_over([*leaves[1:], bytes(32)]).root}

    assert 4 == len(roots)


def test_a_leaf_a_bucket_and_a_node_are_never_the_same_hash() -> None:
    """Whatever stands in them: a node shown as a bucket would prove leaves that never came."""
    left, right = some_leaves(2)
    plain = hashlib.sha256(left + right).digest()
    hashes = {leaf(left + right), bucket_hash(left + right), node_hash(left, right), plain}

    assert 4 == len(hashes)
    tree = tree_over(some_leaves(1024))
    [_, upper] = tree.path(0)
    lower = node_hash(bucket_hash(tree.bucket(0)), bucket_hash(tree.bucket(1)))
    assert tree.root == node_hash(lower, upper)
    # The two hashes under the root, passed off as a bucket of two leaves.
    assert tree.root != root_of(lower + upper, 0, [])


def test_leaves_of_a_chunk_are_those_of_its_reports() -> None:
    """Sealed reports of one length, one after the other."""
    reports = [bytes([number]) * 60 for number in range(5)]

    assert list(map(leaf, reports)) == split(leaves_of(b"".join(reports), 60))
