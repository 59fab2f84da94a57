"""Faults of randomizers and devices."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Reports
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.weights import ResponseWeights
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from user_agent.contribution import Answer, Contributor, draw_dummy_counts, pad

_PERCENT: Final = 50
"""One in so many is 2 %."""


def two_percent_more_truth() -> AbstractContextManager[None]:
    """Plant a truth told 2 % oftener than by its weights."""
    honest = ResponseWeights.respond

    def other(
        self: ResponseWeights, truth: NDArray[np.int64], answers: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        more = ResponseWeights(true=self.true + self.true // _PERCENT, other=self.other)
        return honest(more if self.other else self, truth, answers, rng)

    return planting.attribute(ResponseWeights, "respond", other)


def uneven_dummies() -> AbstractContextManager[None]:
    """Plant dummies of which 2 % name the first bucket."""
    honest = LocalHashing.dummies

    def other(self: LocalHashing, count: int, rng: np.random.Generator) -> Reports:
        reports = honest(self, count, rng)
        reports["bucket"][rng.integers(0, _PERCENT, size=count) == 0] = 0
        return reports

    return planting.attribute(LocalHashing, "dummies", other)


def no_seed_0() -> AbstractContextManager[None]:
    """Plant seeds of which the first is never drawn."""

    def other(self: LocalHashing, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.integers(1, self.family.seeds, size=count, dtype=np.int64)

    return planting.attribute(LocalHashing, "_seeds", other)


def longer_for_odd_values() -> AbstractContextManager[None]:
    """Plant an envelope whose length tells something of the value."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        answer = honest(self, value, rng)
        return replace(answer, envelope=answer.envelope + bytes(value % 2))

    return planting.attribute(Contributor, "answer", other)


def reused_seeds() -> AbstractContextManager[None]:
    """Plant dummies with their user's seed, as OD-HP is printed."""

    def other(reports: Reports, reports_per_user: int) -> Reports:
        if "seed" in (reports.dtype.names or ()):
            reports["seed"] = reports["seed"][0]
        return pad(reports, reports_per_user)

    return planting.function(pad, other)


def varying_dummies() -> AbstractContextManager[None]:
    """Plant users who leave a dummy out, and pad."""

    def other(dummies: Any, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        counts = draw_dummy_counts(dummies, n_users, rng)
        fewer: NDArray[np.int64] = np.maximum(counts - rng.integers(0, 2, size=n_users), 0)
        return fewer

    return planting.function(draw_dummy_counts, other)


class _Unpermuting(np.random.Generator):
    """A generator that permutes nothing."""

    def permutation(self, x: Any, axis: int = 0) -> Any:
        del axis
        return np.arange(x)


def own_report_first() -> AbstractContextManager[None]:
    """Plant submissions that say by their order which report is the person's own."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        return honest(self, value, _Unpermuting(rng.bit_generator))

    return planting.attribute(Contributor, "answer", other)


def seeded_with_value() -> AbstractContextManager[None]:
    """Plant a device whose noise follows from its value."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        del rng
        return honest(self, value, np.random.default_rng(value))

    return planting.attribute(Contributor, "answer", other)


DEVICES: Final = (
    Fault(
        name="probabilities-2-percent",
        says="the truth is told 2 % oftener than the weights say",
        scenario="randomizer",
        check="supports its own item",
        plant=two_percent_more_truth,
    ),
    Fault(
        name="uneven-dummies",
        says="2 % of the dummies name the first bucket",
        scenario="randomizer",
        check="a dummy",
        plant=uneven_dummies,
    ),
    Fault(
        name="no-seed-0",
        says="seed 0 is never drawn, so that seeds are not pairwise independent",
        scenario="randomizer",
        check="seed 0 as often as any",
        plant=no_seed_0,
    ),
    Fault(
        name="value-dependent-length",
        says="an envelope is one byte longer for every other value",
        scenario="devices",
        check="one length of every envelope",
        plant=longer_for_odd_values,
    ),
    Fault(
        name="reused-seeds",
        says="a user's dummies carry the seed of the user's own report",
        scenario="devices",
        check="a seed of its own for every message",
        plant=reused_seeds,
    ),
    Fault(
        name="varying-dummies",
        says="every other user leaves one dummy out, and fills it up with padding",
        scenario="devices",
        check="a fixed number of dummies",
        plant=varying_dummies,
    ),
    Fault(
        name="own-report-first",
        says="a user's own report comes first in every submission",
        scenario="devices",
        check="the own report in every place",
        plant=own_report_first,
    ),
    Fault(
        name="device-generator",
        says="a device draws from a generator that it seeds with the value",
        scenario="devices",
        check="another generator, another answer",
        plant=seeded_with_value,
    ),
)
