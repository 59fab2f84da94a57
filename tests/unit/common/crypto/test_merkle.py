import hashlib

import numpy as np
import pytest

from common.crypto.merkle import (
    BUCKET_LEAVES,
    MAX_BITS,
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
    """Around powers of two, and for a single report."""
    leaves = some_leaves(count)
    tree = tree_over(leaves)

    assert bits_for(count) == tree.bits
    for own in (salted(SALT, plain) for plain in leaves):
        prefix = prefix_of(own, tree.bits)
        assert own in split(tree.bucket(prefix))
        assert tree.root == root_of(tree.bucket(prefix), prefix, tree.path(prefix))
        assert tree.bits == len(tree.path(prefix))


def test_leaves_are_sorted_as_bytes_are_zeros_included_and_repeats_dropped() -> None:
    """Zeros at any place, at the end too: numpy leaves those out when it compares."""
    rng = np.random.default_rng(2)
    rows = [bytes(32), b"\0" * 31 + b"\1", b"\1" + bytes(31), b"\1" + bytes(31)]
    rows += [rng.integers(0, 2, 32, dtype=np.uint8).tobytes() for _ in range(500)]
    rows += [b"\xff" * 5 + bytes(27), b"\xff" * 5 + bytes(26) + b"\1"]

    found = sorted_leaves(bytearray(b"".join(rows)))
    assert sorted(set(rows)) == [row.tobytes() for row in found]


def test_repeats_are_dropped_wherever_they_stand() -> None:
    """Of 60,000 leaves, more than are moved at once, some 14,000 come up to a dozen times."""
    numbers = np.random.default_rng(3).integers(0, 15_000, 60_000)
    rows = [int(number).to_bytes(32) for number in numbers]

    assert b"".join(sorted(set(rows))) == sorted_leaves(bytearray(b"".join(rows))).tobytes()


def test_leaves_salted_together_are_those_salted_one_by_one() -> None:
    """40,000, more than are held as objects at once; and none."""
    leaves = some_leaves(40_000)
    together, nothing = bytearray(b"".join(leaves)), bytearray()
    salt_all(together, SALT)
    salt_all(nothing, SALT)

    assert [salted(SALT, leaf) for leaf in leaves] == split(bytes(together))
    assert b"" == nothing


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
    tree = Tree(sorted_leaves(bytearray(b"".join(leaves))))

    assert 1 == tree.bits
    assert b"" == tree.bucket(0)
    assert tree.root == root_of(b"", 0, tree.path(0))
    assert 600 == tree.largest_bucket


def test_a_tree_over_nothing_has_a_root() -> None:
    """One empty bucket."""
    assert bucket_hash(b"") == tree_over([]).root


def test_one_leaf_more_or_less_is_another_root() -> None:
    """So a batch to which a report was added, or from which one was taken, shows."""
    leaves = some_leaves(600)
    roots = {tree_over(leaves).root, tree_over(leaves[1:]).root}
    roots |= {tree_over([*leaves, bytes(32)]).root, tree_over([*leaves[1:], bytes(32)]).root}

    assert 4 == len(roots)


def test_copies_of_a_report_are_one_leaf() -> None:
    """A thousand of one would stand in one bucket, whatever the salt is."""
    leaves = some_leaves(600)
    copied = tree_over([*leaves, *[leaves[0]] * 1000])

    assert (600, 1) == (copied.n_leaves, copied.bits)
    assert tree_over(leaves).root == copied.root


def test_another_salt_is_another_root_and_another_bucket() -> None:
    """Whoever does not know it cannot tell where a report will stand."""
    leaves, salts = some_leaves(600), [SALT, SALT[:-1] + b"\x00", bytes(32)]

    assert 3 == len({tree_over(leaves, salt).root for salt in salts})
    assert 2**3 == len(
        {tuple(prefix_of(salted(salt, leaf), 1) for salt in salts) for leaf in leaves}
    )


def test_a_leaf_a_bucket_and_a_node_are_never_the_same_hash() -> None:
    """Whatever stands in them: a node shown as a bucket would prove leaves that never came."""
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


def test_leaves_of_a_chunk_are_those_of_its_reports() -> None:
    """Sealed reports of one length, one after the other."""
    reports = [bytes([number]) * 60 for number in range(5)]

    assert list(map(leaf, reports)) == split(leaves_of(b"".join(reports), 60))
