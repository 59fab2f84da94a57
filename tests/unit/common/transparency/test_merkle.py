"""Vectors of [RFC6962, Section 2.1.3] over the leaves of transparency-dev/merkle (Apache-2.0)."""

import hashlib
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.common.errors import ProofError
from shuffledp.common.transparency import merkle
from tests.support.vectors import vectors

_FILE: Final[dict[str, Any]] = vectors("merkle")
_LEAVES: Final = [merkle.leaf_hash(bytes.fromhex(entry)) for entry in _FILE["entries"]]
_NODES: Final[dict[str, bytes]] = {
    name: bytes.fromhex(node) for name, node in _FILE["nodes"].items()
}
_NODES["l"] = hashlib.sha256(b"\x01" + _NODES["i"] + _NODES["j"]).digest()
"""The only node that is not published."""
_ROOTS: Final = {int(size): bytes.fromhex(root) for size, root in _FILE["roots"].items()}
_MOST = 70


def _named(names: str) -> tuple[bytes, ...]:
    return tuple(_NODES[name] for name in names)


@cache
def _tree(size: int) -> tuple[list[bytes], bytes]:
    """Return the leaf hashes and the root of the numbers below a size."""
    leaves = [merkle.leaf_hash(i.to_bytes(2)) for i in range(size)]
    return leaves, merkle.LogTree(leaves).root


def test_the_roots_are_the_published_ones() -> None:
    """Of trees of 0 to 7 leaves."""
    for size, root in _ROOTS.items():
        assert root == merkle.LogTree(_LEAVES[:size]).root


@pytest.mark.parametrize(("index", "path"), [(0, "bhl"), (3, "cgl"), (4, "fjk"), (6, "ik")])
def test_inclusion_paths_are_those_of_the_rfc(index: int, path: str) -> None:
    """The four examples."""
    assert _named(path) == merkle.LogTree(_LEAVES).prove_inclusion(index)
    merkle.verify_inclusion(_LEAVES[index], index, 7, _named(path), _ROOTS[7])


@pytest.mark.parametrize(("old_size", "path"), [(3, "cdgl"), (4, "l"), (6, "ijk")])
def test_consistency_paths_are_those_of_the_rfc(old_size: int, path: str) -> None:
    """The three examples."""
    assert _named(path) == merkle.LogTree(_LEAVES).prove_consistency(old_size)
    merkle.verify_consistency(old_size, _ROOTS[old_size], 7, _ROOTS[7], _named(path))


def test_every_proof_verifies() -> None:
    """Of every leaf, and from every older size, up to 70 leaves."""
    for size in range(1, _MOST + 1):
        leaves, root = _tree(size)
        for index, leaf in enumerate(leaves):
            merkle.verify_inclusion(
                leaf, index, size, merkle.LogTree(leaves).prove_inclusion(index), root
            )
        for old_size in range(size + 1):
            path = merkle.LogTree(leaves).prove_consistency(old_size)
            merkle.verify_consistency(old_size, _tree(old_size)[1], size, root, path)


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
    leaf, path = leaves[index], merkle.LogTree(leaves).prove_inclusion(index)
    wrong = [
        *((leaf, index, variant, root) for variant in _variants(path, bit)),
        *((leaf, other, path, root) for other in range(-1, size + 1) if other != index),
        (_flipped(leaf, bit), index, path, root),
        (leaf, index, path, _flipped(root, bit)),
    ]

    for one, at, through, to in wrong:
        with pytest.raises(ProofError):
            merkle.verify_inclusion(one, at, size, through, to)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@_CASES
def test_a_changed_consistency_proof_fails(size: int, number: int, bit: int) -> None:
    """One bit of any hash, another old root, a missing, added or split hash."""
    leaves, root = _tree(size)
    old_size = number % size + 1
    old_root, path = _tree(old_size)[1], merkle.LogTree(leaves).prove_consistency(old_size)
    wrong = [
        *((old_root, root, variant) for variant in _variants(path, bit)),
        *((_tree(other)[1], root, path) for other in range(size + 1) if other != old_size),
        (old_root, _flipped(root, bit), path),
    ]

    for before, after, through in wrong:
        with pytest.raises(ProofError):
            merkle.verify_consistency(old_size, before, size, after, through)


def test_a_proof_has_hashes_of_32_bytes() -> None:
    """Also where another length could not lead to the root."""
    leaves, root = _tree(3)
    for short in (b"", bytes(31), bytes(33)):
        with pytest.raises(ProofError, match="2 hashes; it must have 2, of 32 bytes"):
            merkle.verify_inclusion(leaves[0], 0, 3, (leaves[1], short), root)


def test_a_tree_extends_the_empty_one_and_no_larger_one() -> None:
    """The empty tree needs its own root and an empty path; sizes never shrink."""
    leaves, root = _tree(5)
    merkle.verify_consistency(0, merkle.EMPTY_ROOT, 5, root, ())

    for old_size, old_root, path in (
        (0, root, ()),
        (0, merkle.EMPTY_ROOT, (bytes(32),)),
        (6, root, ()),
        (-1, root, ()),
    ):
        with pytest.raises(ProofError):
            merkle.verify_consistency(old_size, old_root, 5, root, path)
    assert () == merkle.LogTree(leaves).prove_consistency(0)
