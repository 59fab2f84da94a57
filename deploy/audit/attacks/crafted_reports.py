"""Valid reports that an attacker chooses for the items that they support [CJG21]."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Mechanism, Reports, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.randomized_response import Grr
from common.mechanisms.unary import UnaryEncoding
from common.messages.submission import plain_reports

Items = NDArray[np.int64]

_TRIED: Final = 2**18
"""Reports of a string hash that an attacker tries: a minute on a telephone."""


def crafted(mechanism: Mechanism, targets: Items, rng: np.random.Generator) -> Reports:
    """
    Return the report that lifts the targets most above all items; shape (1,).

    Args:
        mechanism: A mechanism whose reports support items.
        targets: Different items, shape (r,), at least one.
        rng: Draws the reports to try where a hash family is too large to search.

    Raises:
        TypeError: There is no attack for this mechanism.

    Cost: a transform over the finite field, or r passes over the tried reports.
    """
    if isinstance(mechanism, Grr):
        return plain_reports(targets[:1])
    if isinstance(mechanism, UnaryEncoding):
        return _with_bits(mechanism, targets)
    if isinstance(mechanism, LocalHashing):
        return _of_family(mechanism, targets)
    if isinstance(mechanism, StringHashing):
        tried = mechanism.dummies(_TRIED, rng)  # uniform seeds and buckets
        best = int(supported(mechanism, tried, targets).argmax())
        return tried[best : best + 1]
    raise TypeError(f"there is no crafted report for {type(mechanism).__name__}")


def blunt(mechanism: Mechanism) -> Reports | None:
    """Return a report that supports every item, if there is one: seed 0 hashes all to 0."""
    if not isinstance(mechanism, LocalHashing):
        return None
    return np.zeros(1, dtype=mechanism.report_dtype)


def uniform(mechanism: Mechanism, count: int, rng: np.random.Generator) -> Reports:
    """
    Draw valid reports uniformly [CJG21]; shape (count,).

    Dummies are uniform already, except those of unary encodings, which set few bits.
    """
    if not isinstance(mechanism, UnaryEncoding):
        return mechanism.dummies(count, rng)
    bits = rng.integers(0, 2, size=(count, mechanism.domain_size), dtype=np.uint8)
    return _packed(mechanism, bits)


def supported(mechanism: Mechanism, reports: Reports, targets: Items) -> Vector:
    """Count the targets that each report supports; shape (n,). Cost: a pass per target."""
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
    Search the whole family for the report that lifts the targets most above the mean of all items.

    One transform gives the lift of every cell. Seed 0 is left out: it lifts all items alike. Rows
    follow the canonical seeds, whose leading nonzero digit is 1.
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
