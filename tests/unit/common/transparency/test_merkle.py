"""Vectors of [RFC6962, Section 2.1.3] over the leaves of transparency-dev/merkle (Apache-2.0)."""

import hashlib
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import ProofError
from common.transparency.merkle import (
    EMPTY_ROOT,
    LogTree,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
)

_ENTRIES = ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")
_LEAVES = [leaf_hash(bytes.fromhex(entry)) for entry in _ENTRIES]
_NODES = {
    "a": "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "b": "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
    "c": "0298d122906dcfc10892cb53a73992fc5b9f493ea4c9badb27b791b4127a7fe7",
    "d": "07506a85fd9dd2f120eb694f86011e5bb4662e5c415a62917033d4a9624487e7",
    "e": "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    "f": "4271a26be0d8a84f0bd54c8c302e7cb3a3b5d1fa6780a40bcce2873477dab658",
    "g": "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "h": "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
    "i": "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
    "j": "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f",
    "k": "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
}
"""Nodes of the tree of seven leaves, named as in the RFC; its node l is the only one missing."""
_NODES["l"] = hashlib.sha256(
    b"\x01" + bytes.fromhex(_NODES["i"]) + bytes.fromhex(_NODES["j"])
).hexdigest()
_ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: _NODES["k"],
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
}
_MOST = 70


def _named(names: str) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(_NODES[name]) for name in names)


@cache
def _tree(size: int) -> tuple[list[bytes], bytes]:
    """Return the leaf hashes and the root of the numbers below a size."""
    leaves = [leaf_hash(i.to_bytes(2)) for i in range(size)]
    return leaves, LogTree(leaves).root


def test_the_roots_are_the_published_ones() -> None:
    """Of trees of 0 to 7 leaves."""
    for size, root in _ROOTS.items():
        assert root == LogTree(_LEAVES[:size]).root.hex()


@pytest.mark.parametrize(("index", "path"), [(0, "bhl"), (3, "cgl"), (4, "fjk"), (6, "ik")])
def test_inclusion_paths_are_those_of_the_rfc(index: int, path: str) -> None:
    """The four examples."""
    assert _named(path) == LogTree(_LEAVES).prove_inclusion(index)
    verify_inclusion(_LEAVES[index], index, 7, _named(path), bytes.fromhex(_ROOTS[7]))


@pytest.mark.parametrize(("old_size", "path"), [(3, "cdgl"), (4, "l"), (6, "ijk")])
def test_consistency_paths_are_those_of_the_rfc(old_size: int, path: str) -> None:
    """The three examples."""
    old_root, root = bytes.fromhex(_ROOTS[old_size]), bytes.fromhex(_ROOTS[7])

    assert _named(path) == LogTree(_LEAVES).prove_consistency(old_size)
    verify_consistency(old_size, old_root, 7, root, _named(path))


def test_every_proof_verifies() -> None:
    """Of every leaf, and from every older size, up to 70 leaves."""
    for size in range(1, _MOST + 1):
        leaves, root = _tree(size)
        for index, leaf in enumerate(leaves):
            verify_inclusion(leaf, index, size, LogTree(leaves).prove_inclusion(index), root)
        for old_size in range(size + 1):
            path = LogTree(leaves).prove_consistency(old_size)
            verify_consistency(old_size, _tree(old_size)[1], size, root, path)


def _variants(path: tuple[bytes, ...], bit: int) -> list[tuple[bytes, ...]]:
    """Change one bit of each hash, drop or repeat one, add one, and split the first two."""
    changed = [
        (*path[:i], (int.from_bytes(one) ^ 1 << bit).to_bytes(32), *path[i + 1 :])
        for i, one in enumerate(path)
    ]
    moved = [(path[0] + path[1][:1], path[1][1:], *path[2:])] if len(path) > 1 else []
    return [*changed, *moved, (*path, bytes(32)), *([path[:-1], path[1:]] if path else [])]


_NUMBERS = st.integers(0, _MOST - 1)
_CASES = given(size=st.integers(1, _MOST), number=_NUMBERS, bit=st.integers(0, 255))


def _flipped(one: bytes, bit: int) -> bytes:
    return (int.from_bytes(one) ^ 1 << bit).to_bytes(32)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@_CASES
def test_a_changed_inclusion_proof_fails(size: int, number: int, bit: int) -> None:
    """One bit of any hash, another index, a missing, added or split hash."""
    leaves, root = _tree(size)
    index = number % size
    leaf, path = leaves[index], LogTree(leaves).prove_inclusion(index)
    wrong = [
        *((leaf, index, variant, root) for variant in _variants(path, bit)),
        *((leaf, other, path, root) for other in range(-1, size + 1) if other != index),
        (_flipped(leaf, bit), index, path, root),
        (leaf, index, path, _flipped(root, bit)),
    ]

    for one, at, through, to in wrong:
        with pytest.raises(ProofError):
            verify_inclusion(one, at, size, through, to)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@_CASES
def test_a_changed_consistency_proof_fails(size: int, number: int, bit: int) -> None:
    """One bit of any hash, another old root, a missing, added or split hash."""
    leaves, root = _tree(size)
    old_size = number % size + 1
    old_root, path = _tree(old_size)[1], LogTree(leaves).prove_consistency(old_size)
    wrong = [
        *((old_root, root, variant) for variant in _variants(path, bit)),
        *((_tree(other)[1], root, path) for other in range(size + 1) if other != old_size),
        (old_root, _flipped(root, bit), path),
    ]

    for before, after, through in wrong:
        with pytest.raises(ProofError):
            verify_consistency(old_size, before, size, after, through)


def test_a_proof_has_hashes_of_32_bytes() -> None:
    """Also where another length could not lead to the root."""
    leaves, root = _tree(3)
    for short in (b"", bytes(31), bytes(33)):
        with pytest.raises(ProofError, match="2 hashes; it must have 2, of 32 bytes"):
            verify_inclusion(leaves[0], 0, 3, (leaves[1], short), root)


def test_a_tree_extends_the_empty_one_and_no_larger_one() -> None:
    """The empty tree needs its own root and an empty path; sizes never shrink."""
    leaves, root = _tree(5)
    verify_consistency(0, EMPTY_ROOT, 5, root, ())

    for old_size, old_root, path in (
        (0, root, ()),
        (0, EMPTY_ROOT, (bytes(32),)),
        (6, root, ()),
        (-1, root, ()),
    ):
        with pytest.raises(ProofError):
            verify_consistency(old_size, old_root, 5, root, path)
    assert () == LogTree(leaves).prove_consistency(0)
