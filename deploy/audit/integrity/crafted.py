"""Valid reports that nobody drew as the task says: chosen for what they support [CJG21]."""

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Mechanism, Reports, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import DIGEST_BYTES, StringHashing, bucket_of
from common.mechanisms.randomized_response import Grr
from common.mechanisms.unary import UnaryEncoding
from common.messages.submission import plain_reports

Items = NDArray[np.int64]

_SEEDS_TRIED: Final = 2**17
"""By a user who looks for a seed that sends many strings to one bucket; a minute of a telephone."""


def crafted(mechanism: Mechanism, targets: Items, rng: np.random.Generator) -> Reports:
    """
    Make the report that lifts the targets most above all items; shape (1,).

    Args:
        mechanism: Any whose reports support items.
        targets: Different items, shape (r,), at least one.
        rng: Draws the seeds that are tried where no family can be searched whole.

    Cost: a transform of a hash family over a field; r² passes over the tried seeds of strings.
    """
    if isinstance(mechanism, Grr):
        return plain_reports(targets[:1])
    if isinstance(mechanism, UnaryEncoding):
        return _with_bits(mechanism, targets)
    if isinstance(mechanism, LocalHashing):
        return _of_family(mechanism, targets)
    if isinstance(mechanism, StringHashing):
        return _of_seeds(mechanism, targets, rng)
    raise TypeError(f"there is no crafted report for {type(mechanism).__name__}")


def blunt(mechanism: Mechanism) -> Reports | None:
    """Make the report that supports every item, where there is one: seed 0 hashes all to 0."""
    if not isinstance(mechanism, LocalHashing):
        return None
    return np.zeros(1, dtype=mechanism.report_dtype)


def uniform(mechanism: Mechanism, count: int, rng: np.random.Generator) -> Reports:
    """
    Draw from all valid reports, each as likely as another [CJG21]; shape (count,).

    Dummies are that already, but for unary encodings, whose dummies set few bits.
    """
    if not isinstance(mechanism, UnaryEncoding):
        return mechanism.dummies(count, rng)
    bits = rng.integers(0, 2, size=(count, mechanism.domain_size), dtype=np.uint8)
    return _packed(mechanism, bits)


def supported(mechanism: Mechanism, reports: Reports, targets: Items) -> Vector:
    """Count the targets that each report supports; shape (n,). Cost: a pass for each target."""
    held = np.zeros(len(reports))
    for target in targets.tolist():
        held += mechanism.supports(reports, target)
    return held


def _with_bits(mechanism: UnaryEncoding, targets: Items) -> Reports:
    bits = np.zeros((1, mechanism.domain_size), dtype=np.uint8)
    bits[0, targets] = 1
    return _packed(mechanism, bits)


def _packed(mechanism: UnaryEncoding, bits: NDArray[np.uint8]) -> Reports:
    reports = np.zeros(len(bits), dtype=mechanism.report_dtype)
    packed = np.packbits(bits, axis=1, bitorder="little")
    reports["bits"][:, : packed.shape[1]] = packed
    return reports


def _of_family(mechanism: LocalHashing, targets: Items) -> Reports:
    """
    Search the whole family for the report that lifts the targets most above all items' mean.

    A few seeds hash every item that there is to one bucket: what they support is more, but nothing
    is picked out by it. One transform gives it for every cell.
    Rows stand in the order of their canonical seeds, whose leading nonzero digit is 1.
    """
    wanted = np.full(mechanism.domain_size, -len(targets) / mechanism.domain_size)
    wanted[targets] += 1.0
    family = mechanism.family
    lifted = mechanism.channel(1.0).incidence.forward(wanted).reshape(family.rows, family.q)
    row, bucket = divmod(int(lifted[1:].argmax()), family.q)
    digit = 0
    while row >= family.q**digit:
        row -= family.q**digit
        digit += 1
    report = np.zeros(1, dtype=mechanism.report_dtype)
    report["seed"], report["bucket"] = family.q**digit + row, bucket
    return report


def _of_seeds(mechanism: StringHashing, targets: Items, rng: np.random.Generator) -> Reports:
    """Try seeds at random: there are too many to try them all."""
    seeds = rng.integers(0, 2**64 - 1, size=_SEEDS_TRIED, dtype=np.uint64, endpoint=True)
    buckets = np.stack(
        [
            bucket_of(seeds, _digest(mechanism, target), mechanism.buckets)
            for target in targets.tolist()
        ]
    )
    most = np.zeros(_SEEDS_TRIED, dtype=np.int64)
    where = buckets[0].copy()
    for first in buckets:
        agreeing = (buckets == first).sum(axis=0)
        better = agreeing > most
        most[better], where[better] = agreeing[better], first[better]
    best = int(most.argmax())
    report = np.zeros(1, dtype=mechanism.report_dtype)
    report["seed"], report["bucket"] = seeds[best], where[best]
    return report


def _digest(mechanism: StringHashing, item: int) -> NDArray[np.uint64]:
    """Hash a candidate as devices do; `supports` says whether this is so."""
    name = mechanism.candidates[item].encode()
    raw = hashlib.blake2b(name, digest_size=DIGEST_BYTES, key=mechanism.nonce).digest()
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64)
