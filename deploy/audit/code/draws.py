"""Whether numbers of dummies, and what the shuffler draws, have their laws."""

from dataclasses import replace
from typing import Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

from common.mechanisms.base import Mechanism, Vector
from common.mechanisms.registry import mechanism_of
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec
from common.task.shuffler_spec import RATIO_SUM, ShufflerSpec
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.taken import bits_taken
from deploy.audit.finding import Outcome
from deploy.audit.laws.dummy_laws import law_of_added, law_of_extra
from deploy.audit.laws.panel import panel
from shuffler import dummies
from shuffler.dummies import draw_item_dummies, draw_kept
from user_agent.contribution import draw_dummies, draw_dummy_counts

_SLOW: Final = 20
"""How much fewer users are drawn where each is drawn alone."""
_BATCH: Final = 100
"""Reports of a batch that is drawn by itself."""
_BATCHES: Final = 4_000
_ITEMS: Final = 4
"""Of a domain for which numbers are drawn by themselves."""
_LEAST_CHANCE: Final = 1e-18
"""Of a sum: what Fourier transforms do not tell from 0."""
_CUT: Final = 200
"""How much fewer users are drawn where a large part of the draws is cut."""
_MOST_NAMED: Final = 2
"""Of four items, each named with chance one half: five draws of sixteen are cut."""
_STEEP: Final = RATIO_SUM // 5 * 4
_FLANKS: Final = (
    ShufflerSpec(law="geometric", peak=2, left_weight=_STEEP, right_weight=_STEEP, most=5),
    ShufflerSpec(law="geometric", peak=0, left_weight=_STEEP, right_weight=_STEEP, most=5),
)
"""Laws of which a large part lies beyond both ends, and beyond one."""
_COINS: Final = ShufflerSpec(law="binomial", trials=150, most=150)
_AT_ONCE: Final = 8
"""Words that are drawn together: of two items of these coins, three words each."""
_OF_COINS: Final = 40


def play_draws(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Test the laws of the audited task, and one of every kind."""
    checks, draws = Checks(), audited.effort.reports // 2
    for task in (audited.task, *panel()):
        law = task.dummies
        if law.uniform:
            _check_numbers(checks, law, draws, rng)
        else:
            _check_named(checks, mechanism_of(task), law, draws // _SLOW, rng)
        if not task.shuffler.idle:
            _check_shuffler(checks, task.shuffler, draws, rng)
    for task in panel():
        if not task.dummies.uniform:
            cut = replace(task.dummies, extra_weight=EXTRA_WEIGHT_SUM // 2, most=_MOST_NAMED)
            _check_named(checks, mechanism_of(task), cut, draws // _CUT, rng)
    for flanks in _FLANKS:
        _draw_added(checks, flanks, draws // _SLOW, rng)
    _check_parts(checks, rng)
    finding = checks.finding(
        scenario="draws",
        title="Numbers of dummies, and the shuffler's draws, have their laws",
        heading="correctness",
        sentence="As many dummies are added, and as many reports dropped, as the guarantees count "
        "on; whatever value a person holds.",
        trials=draws,
        advice="Do not collect with this version: its guarantees do not describe it.",
    )
    return Outcome(findings=(finding,))


def _check_numbers(checks: Checks, law: DummySpec, users: int, rng: np.random.Generator) -> None:
    drawn = draw_dummy_counts(law, users, rng) - law.per_user
    checks.must(f"{law.law} dummies within their range", bool((drawn >= 0).all()))
    if law.law == "fixed":
        checks.must("a fixed number of dummies", not drawn.any())
        return
    chances = law_of_extra(law)
    checks.must(f"{law.law} dummies within their range", bool((drawn < len(chances)).all()))
    counts = np.bincount(np.clip(drawn, 0, len(chances) - 1), minlength=len(chances))
    checks.test(f"{law.law} dummies", fit.of_cells(counts, chances))


def _check_named(
    checks: Checks, mechanism: Mechanism, law: DummySpec, users: int, rng: np.random.Generator
) -> None:
    """Test dummies that name items: each item apart, but for the cut of their number."""
    drawn = [draw_dummies(mechanism, law, rng) for _ in range(users)]
    numbers = np.bincount([len(one) for one in drawn], minlength=law.trials + 1)
    chances = np.append(law_of_extra(law), np.zeros(law.trials - law.most))
    checks.test("dummies that name items", fit.of_cells(numbers, chances))
    named = mechanism.tally(np.concatenate(drawn))
    checks.test("which items dummies name", fit.of_cells(named, np.ones(len(named))))
    checks.must(
        "each item once at most", all(mechanism.tally(one).max() <= 1 for one in drawn if len(one))
    )


def _check_shuffler(
    checks: Checks, law: ShufflerSpec, draws: int, rng: np.random.Generator
) -> None:
    kept = int(draw_kept(law, draws, rng).sum())
    checks.test("reports that the shuffler keeps", fit.of_chance(kept, draws, law.kept))
    batches = np.array([draw_kept(law, _BATCH, rng).sum() for _ in range(_BATCHES)])
    by_number = np.bincount(batches, minlength=_BATCH + 1)
    binomial = stats.binom.pmf(np.arange(_BATCH + 1), _BATCH, law.kept)
    checks.test("how many of a small batch are kept", fit.of_cells(by_number, binomial))
    if law.law == "none":
        return
    numbers = _draw_added(checks, law, draws, rng)
    if int(numbers.max()) <= law.most:
        _check_together(checks, law, numbers, rng)


def _draw_added(
    checks: Checks, law: ShufflerSpec, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw numbers of dummies for so many items, and test their law."""
    numbers = draw_item_dummies(law, draws, rng)
    checks.must("the shuffler's dummies within their range", int(numbers.max()) <= law.most)
    counts = np.bincount(np.clip(numbers, 0, law.most), minlength=law.most + 1)
    checks.test(f"the shuffler's {law.law} dummies", fit.of_cells(counts, law_of_added(law)))
    return numbers


def _check_parts(checks: Checks, rng: np.random.Generator) -> None:
    """Draw for as many items as do not go into one part of the draws: every part is drawn."""
    source = np.random.Philox(rng.integers(0, 2**63, size=4).tolist())
    with patch.object(dummies, "_WORDS_AT_ONCE", _AT_ONCE):
        numbers = draw_item_dummies(_COINS, _OF_COINS, np.random.Generator(source))
    parts = {tuple(part) for part in numbers.reshape(-1, 2).tolist()}
    checks.must(
        "the shuffler's dummies of many items: each item has coins of its own",
        bits_taken(source) >= _OF_COINS * _COINS.trials and len(parts) > _OF_COINS // 4,
    )


def _check_together(
    checks: Checks, law: ShufflerSpec, numbers: NDArray[np.int64], rng: np.random.Generator
) -> None:
    """
    Test that items know nothing of each other: how sums vary of those that are drawn together.

    Args:
        checks: Where the tests are noted.
        law: Of each number.
        numbers: Drawn together for very many items, of which neighbours are added.
        rng: Of the draws for a domain of few items, of which all are added.
    """
    few = np.array([draw_item_dummies(law, _ITEMS, rng).sum() for _ in range(_BATCHES)])
    pairs = numbers[: len(numbers) // 2 * 2].reshape(-1, 2).sum(axis=1)
    for items, sums, words in ((_ITEMS, few, "all items"), (2, pairs, "two neighbours")):
        most = items * law.most
        seen = np.bincount(np.clip(sums, 0, most), minlength=most + 1)
        checks.test(
            f"the shuffler's {law.law} dummies of {words} together",
            fit.of_cells(seen, _law_of_sum(law_of_added(law), items)),
        )


def _law_of_sum(chances: Vector, items: int) -> Vector:
    """Give the law of a sum of independent numbers of one law, by Fourier transforms."""
    size = items * (len(chances) - 1) + 1
    sums: Vector = fft.irfft(fft.rfft(chances, size) ** items, size)
    return np.maximum(sums, _LEAST_CHANCE)
