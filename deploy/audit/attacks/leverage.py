"""
Reports that an attacker crafts to support target items [CJG21], and the leverage of one report on
the sum of the targets' estimates.

The estimator is linear in the support counts. The weight of a report is the number of targets that
it supports; it adds to n·(p-q) times the sum of the targets' debiased shares. For r targets the
estimator subtracts r·q per user and r·q_dummy per further report. If a share λ of users each send
one report of weight h and k further ones of weight h', the sum rises by

    λ·[(h - r·q + k·(h' - r·q_dummy)) / (p - q) - f_T]

on average, with f_T the targets' share among the other users. [CJG21] has the case k = 0. The
report of a user who holds a target weighs r·q + p - q on average.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Mechanism, Reports, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.randomized_response import Grr
from common.mechanisms.support import SupportCounting
from common.mechanisms.unary import UnaryEncoding
from common.messages.submission import plain_reports
from common.task.task import Task

Items = NDArray[np.int64]

_TRIED_REPORTS: Final = 2**18
"""Number of reports of a string hash that an attacker tries: a minute on a phone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leverage:
    """Weights of honest, random and crafted reports, for one set of r targets."""

    signal: float
    """p - q, the difference of true and false support probabilities."""
    own_floor: float
    """Weight subtracted per user: r·q."""
    dummy_floor: float
    """Weight subtracted per further report: r·q_dummy."""
    high: float
    """Maximum weight of a report; the minimum is 0. Together they bound every attack."""
    uniform: float
    """Mean weight of a uniformly random valid report."""
    crafted: Reports
    """Report that raises the targets most above the mean of all items; shape (1,)."""
    weight: float
    """Weight of the crafted report."""

    @property
    def honest(self) -> float:
        """Mean weight of an honest report on a target."""
        return self.own_floor + self.signal

    def answers(self, own: float, *, further: float = 0.0, each: float = 0.0) -> float:
        """Return how many honest answers raise the targets as much as a submission's reports."""
        moved = own - self.own_floor + further * (each - self.dummy_floor)
        return moved / self.signal

    def gain(self, share: float, own: float, *, further: float, each: float, held: float) -> float:
        """Return the mean rise; λ is `share`, h `own`, k `further`, h' `each`, and f_T `held`."""
        return share * (self.answers(own, further=further, each=each) - held)


def leverage(
    task: Task, mechanism: Mechanism, targets: Items, rng: np.random.Generator
) -> Leverage:
    """Compute the weights of reports for distinct targets, shape (r,)."""
    one_item, bits = isinstance(mechanism, Grr), isinstance(mechanism, UnaryEncoding)
    if not isinstance(mechanism, SupportCounting):
        raise TypeError(f"reports of {type(mechanism).__name__} support no items")
    worst, r = crafted(mechanism, targets, rng), len(targets)
    # If the shuffler adds dummies, only those are subtracted, whatever users send.
    expected = mechanism.q_dummy if task.shuffler.only_permutes else 0.0
    return Leverage(
        signal=mechanism.p - mechanism.q,
        own_floor=r * mechanism.q,
        dummy_floor=r * expected,
        high=1.0 if one_item else float(r),
        uniform=r / 2 if bits else r * mechanism.q_dummy,
        crafted=worst,
        weight=float(supported(mechanism, worst, targets)[0]),
    )


def crafted(mechanism: Mechanism, targets: Items, rng: np.random.Generator) -> Reports:
    """
    Return the report that raises distinct targets most above the mean of all items; shape (1,).

    Raises TypeError if no attack on this mechanism is implemented.
    """
    if isinstance(mechanism, Grr):
        return plain_reports(targets[:1])
    if isinstance(mechanism, UnaryEncoding):
        bits = np.zeros((1, mechanism.domain_size), dtype=np.uint8)
        bits[0, targets] = 1
        return _packed(mechanism, bits)
    if isinstance(mechanism, LocalHashing):
        return _of_family(mechanism, targets)
    if isinstance(mechanism, StringHashing):
        tried = mechanism.dummies(_TRIED_REPORTS, rng)  # uniform seeds and buckets
        best = int(supported(mechanism, tried, targets).argmax())
        return tried[best : best + 1]
    raise TypeError(f"cannot craft reports of {type(mechanism).__name__}")


def uniform(mechanism: Mechanism, count: int, rng: np.random.Generator) -> Reports:
    """Draw valid reports uniformly [CJG21]: dummies, or vectors with half of their bits set."""
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


def _packed(mechanism: UnaryEncoding, bits: NDArray[np.uint8]) -> Reports:
    reports = np.zeros(len(bits), dtype=mechanism.report_dtype)
    packed = np.packbits(bits, axis=1, bitorder="little")
    reports["bits"][:, : packed.shape[1]] = packed
    return reports


def _of_family(mechanism: LocalHashing, targets: Items) -> Reports:
    """
    Search the hash family for the best report: one transform computes the gain of every cell.

    Seed 0 is skipped: it raises all items equally. Rows follow the canonical seeds, whose leading
    nonzero digit is 1.
    """
    values = np.full(mechanism.domain_size, -len(targets) / mechanism.domain_size)
    values[targets] += 1.0
    family = mechanism.family
    gains = mechanism.channel(1.0).incidence.forward(values).reshape(family.rows, family.q)
    row, bucket = divmod(int(gains[1:].argmax()), family.q)
    digit = 0
    while row >= family.q**digit:
        row -= family.q**digit
        digit += 1
    report = np.zeros(1, dtype=mechanism.report_dtype)
    report["seed"], report["bucket"] = family.q**digit + row, bucket
    return report
