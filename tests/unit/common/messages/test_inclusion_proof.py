import dataclasses
import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import ProofError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.inclusion_proof import (
    BUCKET_LEAVES,
    HASH_BYTES,
    BatchCommitment,
    InclusionProof,
    Tree,
    bits_for,
    bucket_hash,
    bucket_hashes,
    distinct_rows,
    leaf,
    leaves_of,
    node_hash,
    prefix_of,
    range_count,
    root_of,
    salted,
    salted_leaves,
    split,
    split_ranges,
)
from shuffledp.common.task_digest import TaskDigest
from tests.support.leaves import SALT, GrownTree, commitment_over, some_leaves

_SIZES = [1, 2, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 4096, 5000]


@pytest.mark.parametrize("count", _SIZES)
def test_every_leaf_leads_to_the_root(count: int) -> None:
    """Sizes are around powers of two, or one report; an empty tree has one empty bucket."""
    assert bucket_hash(b"") == GrownTree([]).root
    leaves = some_leaves(count)
    grown = GrownTree(leaves)
    tree = grown.tree

    assert bits_for(count) == tree.bits
    for own in (salted(SALT, plain) for plain in leaves):
        prefix = prefix_of(own, tree.bits)
        assert own in split(grown.buckets[prefix])
        assert tree.root == root_of(grown.buckets[prefix], prefix, tree.path(prefix))
        assert tree.bits == len(tree.path(prefix))


def test_leaves_are_sorted_as_bytes_without_repeats() -> None:
    """Trailing zero bytes count, although numpy ignores them. Also 60,000 leaves with repeats."""
    rng = np.random.default_rng(2)
    rows = [bytes(32), b"\0" * 31 + b"\1", b"\1" + bytes(31), b"\1" + bytes(31)]
    rows += [rng.integers(0, 2, 32, dtype=np.uint8).tobytes() for _ in range(500)]
    rows += [b"\xff" * 5 + bytes(27), b"\xff" * 5 + bytes(26) + b"\1"]

    assert sorted(set(rows)) == split(_distinct(rows))
    rows = [int(number).to_bytes(32) for number in rng.integers(0, 15_000, 60_000)]
    assert sorted(set(rows)) == split(_distinct(rows))


def _rows(leaves: list[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(leaves), dtype=np.uint8).reshape(-1, HASH_BYTES)


def _distinct(leaves: list[bytes]) -> bytes:
    return distinct_rows(_rows(leaves)).tobytes()


@pytest.mark.parametrize("n_ranges", [1, 2, 8])
def test_the_tree_by_ranges_is_that_of_all_leaves(n_ranges: int) -> None:
    """Three parts of 5,000 leaves, some repeated, in ranges of one or more buckets."""
    leaves = some_leaves(5000)
    whole = GrownTree(leaves)
    ranges: list[list[NDArray[np.uint8]]] = [[] for _ in range(n_ranges)]
    for part in (leaves[:2000], leaves[1500:], leaves[:10]):
        salted_part = salted_leaves(b"".join(part), SALT)
        for rows, found in zip(ranges, split_ranges(salted_part, n_ranges), strict=True):
            rows.append(found)
    distinct = [distinct_rows(np.concatenate(rows)) for rows in ranges]
    bits = bits_for(sum(map(len, distinct)))
    hashed = [bucket_hashes(rows, (1 << bits) // n_ranges, bits) for rows in distinct]

    assert whole.root == Tree(5000, b"".join(hashes for hashes, _ in hashed)).root
    assert sorted(map(len, whole.buckets)) == sorted(
        HASH_BYTES * size for _, sizes in hashed for size in sizes.tolist()
    )


def test_rows_keep_what_follows_their_leaf() -> None:
    """A report travels with its salted leaf; of equal leaves, the first row stays."""
    leaves = some_leaves(300)
    rows = np.array([list(leaf + bytes([number % 256])) for number, leaf in enumerate(leaves)])
    rows = np.concatenate([rows, rows[:5] ^ np.array([0] * 32 + [255])]).astype(np.uint8)
    found = distinct_rows(np.concatenate(split_ranges(rows, 4)))

    assert sorted(map(bytes, rows[:300])) == sorted(map(bytes, found))


@pytest.mark.parametrize(
    ("n_reports", "ranges"), [(0, 1), (2**14, 1), (2**15, 2), (10**6, 32), (10**9, 1024)]
)
def test_the_number_of_ranges_follows_from_the_number_of_reports(
    n_reports: int, ranges: int
) -> None:
    """A power of two, no larger than the number of buckets of a whole batch."""
    assert ranges == range_count(n_reports)
    assert ranges <= 1 << bits_for(n_reports)


def test_leaves_made_together_are_those_made_one_by_one() -> None:
    """40,000 salted leaves, more than are objects at a time; and the leaves of five reports."""
    leaves = some_leaves(40_000)
    together = salted_leaves(b"".join(leaves), SALT).tobytes()
    reports = [bytes([number]) * 60 for number in range(5)]

    assert [salted(SALT, leaf) for leaf in leaves] == split(together)
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
    tree, copied = GrownTree(leaves), GrownTree([*leaves, *[leaves[0]] * 1000]).tree
    hashes, sizes = bucket_hashes(distinct_rows(_rows(leaves)), 2, 1)
    plain = Tree(600, hashes)

    assert (1, [0, 600]) == (plain.bits, sizes.tolist())
    assert plain.root == root_of(b"", 0, plain.path(0))
    assert (600, 1, tree.root) == (copied.n_leaves, copied.bits, copied.root)
    changed = (leaves[1:], [*leaves, bytes(32)], [*leaves[1:], bytes(32)])
    assert 4 == len({tree.root, *(GrownTree(others).root for others in changed)})


def test_the_salt_decides_root_and_bucket() -> None:
    """Without the salt, nobody can predict a report's bucket."""
    leaves, salts = some_leaves(600), [SALT, SALT[:-1] + b"\x00", bytes(32)]

    assert 3 == len({GrownTree(leaves, salt).root for salt in salts})
    assert 2**3 == len(
        {tuple(prefix_of(salted(salt, leaf), 1) for salt in salts) for leaf in leaves}
    )


def test_leaf_bucket_and_node_hashes_are_separated() -> None:
    """A node shown as a bucket would prove leaves that never arrived."""
    left, right = some_leaves(2)
    both = left + right
    hashes = [leaf(both), bucket_hash(both), node_hash(left, right), salted(left, right)]

    assert [hashlib.sha256(bytes([kind]) + both).digest() for kind in range(4)] == hashes
    tree = GrownTree(some_leaves(1024))
    [_, upper] = tree.tree.path(0)
    lower = node_hash(bucket_hash(tree.buckets[0]), bucket_hash(tree.buckets[1]))
    assert tree.root == node_hash(lower, upper)
    # The two hashes under the root, passed off as a bucket of two leaves.
    assert tree.root != root_of(lower + upper, 0, [])


_DIGEST = TaskDigest(b"d" * 32)
_ANALYZER = SigningIdentity.generate()
_LEAVES = some_leaves(1500)
_TREE = GrownTree(_LEAVES)
_COMMITMENT = commitment_over(_LEAVES, _ANALYZER, _DIGEST)


def _proof(leaf: bytes) -> InclusionProof:
    return _TREE.prove(_COMMITMENT, _COMMITMENT.prefix_of(leaf))


def _holds(proof: InclusionProof, leaf: bytes) -> bool:
    return proof.includes(leaf, _ANALYZER.public_identity(), _DIGEST, 10**6)


def test_a_proof_shows_whether_a_leaf_arrived() -> None:
    """The leaf's bucket holds it or lacks it; committing again gives the same bytes."""
    again = BatchCommitment.sign(_ANALYZER, _DIGEST, BatchId(bytes(16)), _TREE.tree, SALT)
    assert _COMMITMENT == again
    for own in _LEAVES[::100]:
        assert _holds(_proof(own), own)
    for absent in some_leaves(20, start=10**6):
        assert not _holds(_proof(absent), absent)


def test_a_changed_or_moved_bucket_proves_nothing() -> None:
    """A leaf is added or removed, or the bucket or the path is another."""
    [absent], own = some_leaves(1, start=10**6), _LEAVES[0]
    added = b"".join(sorted([*split(_proof(absent).bucket), salted(SALT, absent)]))
    proof = _proof(own)
    removed = b"".join(one for one in split(proof.bucket) if one != salted(SALT, own))
    paths = ([bytes(32), proof.path[1]], [proof.path[0], bytes(32)], proof.path[::-1])
    for forged, expected in (
        (dataclasses.replace(_proof(absent), bucket=added), absent),
        (dataclasses.replace(proof, bucket=removed), own),
        (_TREE.prove(_COMMITMENT, _COMMITMENT.prefix_of(own) ^ 1), own),
        *((dataclasses.replace(proof, path=path), own) for path in paths),
    ):
        with pytest.raises(ProofError, match="does not lead to the signed root"):
            _holds(forged, expected)
    for path in (proof.path[:-1], [*proof.path, bytes(32)]):
        with pytest.raises(ProofError, match="steps; it must have 2"):
            _holds(dataclasses.replace(proof, path=path), own)


def test_every_field_of_a_commitment_is_signed() -> None:
    """Another signer and another task are refused with their own messages."""
    for signer, digest, message in (
        (SigningIdentity.generate(), _DIGEST, "not signed by the pinned identity"),
        (_ANALYZER, TaskDigest(b"e" * 32), "belongs to another task"),
    ):
        shown = commitment_over(_LEAVES, signer, digest)
        with pytest.raises(ProofError, match=message):
            _holds(_TREE.prove(shown, shown.prefix_of(_LEAVES[0])), _LEAVES[0])
    others = {
        "task_digest": TaskDigest(b"e" * 32),
        "batch_id": BatchId(b"e" * 16),
        "n_leaves": _COMMITMENT.n_leaves + 1,
        "bits": _COMMITMENT.bits + 1,
        "salt": bytes(len(SALT)),
        "root": GrownTree(_LEAVES[1:]).root,
        "signature": bytes(64),
    }
    _COMMITMENT.verify(_ANALYZER.public_identity(), _DIGEST, 10**6)
    assert list(others) == [field.name for field in dataclasses.fields(_COMMITMENT)]
    for name, value in others.items():
        forged = dataclasses.replace(_COMMITMENT, **{name: value})  # type: ignore[arg-type]
        with pytest.raises(ProofError):
            forged.verify(_ANALYZER.public_identity(), forged.task_digest, 10**6)


@pytest.mark.parametrize(("n_leaves", "bits"), [(1500, 3), (1500, 1), (511, 1), (10**6, 32)])
def test_a_tree_of_another_depth_is_refused_though_it_is_signed(n_leaves: int, bits: int) -> None:
    """Small buckets would reveal the leaf to the shuffler that relays them."""
    shaped = dataclasses.replace(_COMMITMENT, n_leaves=n_leaves, bits=bits)

    with pytest.raises(ProofError, match=f"has {bits} bits"):
        shaped.verify(_ANALYZER.public_identity(), _DIGEST, 10**6)


def test_a_signed_tree_of_more_leaves_than_the_batch_can_have_is_refused() -> None:
    """With 2^40 leaves claimed, a prefix of 32 bits would name one of 100,000."""
    tree = GrownTree(_LEAVES).tree
    tree.n_leaves, tree.bits = 2**40, 32
    signed = BatchCommitment.sign(_ANALYZER, _DIGEST, BatchId(bytes(16)), tree, SALT)
    pinned = _ANALYZER.public_identity()
    signed.verify(pinned, _DIGEST, 2**40)

    with pytest.raises(ProofError, match="has 1099511627776 leaves, not 1500 at most"):
        signed.verify(pinned, _DIGEST, 1500)
    _COMMITMENT.verify(pinned, _DIGEST, 1500)
    with pytest.raises(ProofError, match="has 1500 leaves, not 1499 at most"):
        _proof(_LEAVES[0]).includes(_LEAVES[0], pinned, _DIGEST, 1499)


def test_a_tree_of_another_salt_proves_nothing() -> None:
    """Neither the signed root nor a root signed under the wrong salt helps."""
    own, other = _LEAVES[0], bytes(32)
    elsewhere = GrownTree(_LEAVES, other)
    wrongly_signed = BatchCommitment.sign(
        _ANALYZER, _DIGEST, BatchId(bytes(16)), elsewhere.tree, SALT
    )

    with pytest.raises(ProofError, match="does not lead to the signed root"):
        _holds(elsewhere.prove(_COMMITMENT, _COMMITMENT.prefix_of(own)), own)
    place = elsewhere.prove(wrongly_signed, wrongly_signed.prefix_of(own))
    assert not _holds(place, own)
    rightly_signed = commitment_over(_LEAVES, _ANALYZER, _DIGEST, other)
    assert _holds(elsewhere.prove(rightly_signed, rightly_signed.prefix_of(own)), own)
