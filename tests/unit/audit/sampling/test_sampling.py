"""Tests of the code's draws: correct code passes, and small errors of each kind fail."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.audit.families.family import Family, ItemFamily
from shuffledp.audit.finding import Checks, Rows
from shuffledp.audit.sampling.devices import run_devices, run_draws
from shuffledp.audit.sampling.draws import check_order, run_randomizer
from shuffledp.audit.scenario import Ports
from shuffledp.audit.weaknesses import DUMMY_LEFT_OUT, SEED_REUSED
from shuffledp.common.mechanisms.base import Reports
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.mechanisms.support import SupportCounting
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages.submission import Value
from tests.support.audits import audited
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task


def _rng() -> np.random.Generator:
    return np.random.default_rng(1)


def _all_hold(rows: Rows) -> bool:
    return all(row.verdict == "holds" for row in rows)


def test_distributions_are_those_of_the_mechanisms() -> None:
    """The probabilities from ε and those from integers agree for every protocol."""
    for task in map(protocol_task, ITEM_PROTOCOLS):
        mechanism, distribution = mechanism_of(task), audited(task).family.support
        if isinstance(mechanism, SupportCounting):
            found = (mechanism.p, mechanism.q, mechanism.q_dummy)
            assert found == pytest.approx(
                (distribution.own, distribution.other, distribution.dummy), rel=1e-8
            )
        independent = distribution.both == distribution.own * distribution.other
        assert not isinstance(mechanism, LocalHashing) or independent


def test_every_mechanism_has_a_reference() -> None:
    """The class of each protocol's mechanism has a family of its own."""
    tasks = [*map(protocol_task, ITEM_PROTOCOLS), *map(kind_task, OF_OTHER_KINDS)]
    families = {type(audited(task).family) for task in tasks}

    assert not families & {Family, ItemFamily}


class _NeverSeed0(Ports):
    def draw_reports(
        self, family: Family[Any], value: Value, n: int, rng: np.random.Generator
    ) -> Reports:
        reports = super().draw_reports(family, value, n, rng)
        kept: Reports = reports[reports["seed"] != 0]
        return kept


@pytest.mark.slow
def test_seeds_that_are_never_0_fail() -> None:
    """Without it the hash family is not pairwise independent."""
    subject = dataclasses.replace(audited(reports=1_000_000), ports=_NeverSeed0())
    [row] = run_randomizer(subject, _rng())

    assert "seed 0 as often as any other" in row.sentence


class _Swapped(Tables):
    """Mistakes the first attribute for the second."""

    def encode(self, values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        return super().encode(values[:, [1, 0, *range(2, values.shape[1])]], rng)


def test_cells_of_another_attribute_fail() -> None:
    """Cells are computed from the task, so that the audit repeats no mistake of the mechanism."""
    subject, wrong = audited(kind_task("tables")), audited(kind_task("tables"))
    own = subject.mechanism
    swapped = _Swapped(views=own.views, attribute_sizes=own.attribute_sizes, tables=own.tables)
    vars(wrong)["family"] = dataclasses.replace(subject.family, mechanism=swapped)

    assert _all_hold(run_randomizer(subject, _rng()))
    assert not _all_hold(run_randomizer(wrong, _rng()))


def test_numbers_of_dummies_pass_and_omitted_dummies_fail() -> None:
    """Numbers drawn alone, and in whole submissions."""
    subject = audited(protocol_task("od-hp"), devices=2000)

    assert _all_hold(run_draws(subject, _rng()))
    assert not _all_hold(run_draws(dataclasses.replace(subject, ports=DUMMY_LEFT_OUT), _rng()))
    assert _all_hold(run_devices(subject, _rng()))


def test_dummies_with_the_seed_of_their_report_fail() -> None:
    """The flaw of OD-HP as printed fails one test, and no other."""
    subject = audited(protocol_task("od-hp"), devices=500)
    [row] = run_devices(dataclasses.replace(subject, ports=SEED_REUSED), _rng())

    assert row.sentence == "Failed: the same seed twice in one submission."


@pytest.mark.parametrize(
    ("order", "found"),
    [
        (np.arange(6000), "neighbours stay neighbours"),
        (np.arange(6000)[::-1], "neighbours stay neighbours"),
        (np.arange(6000).reshape(2, -1).T.ravel(), "stay near"),
        (np.concatenate([_rng().permutation(3000), 3000 + _rng().permutation(3000)]), "early"),
    ],
    ids=["kept", "reversed", "interleaved", "two batches"],
)
def test_a_large_order_that_is_not_uniform_fails(order: np.ndarray, found: str) -> None:
    """In a test whose name describes the fault."""
    checks = Checks()
    check_order(checks, "order", order)

    assert any(found in name for name in checks.failures), checks.failures
