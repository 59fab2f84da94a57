"""
Rules so small that no game shows whether they are kept: rounding, places, hashes, coins.

Each is held against a computation of its own here, or against all that can be drawn: of second
draws, where there are very many, the first 65,536.
"""

from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.hashing.placement import Placement
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.sampling import exact_coins
from common.mechanisms.unary import OptimizedUnary, SymmetricUnary
from common.mechanisms.weights import ResponseWeights
from common.messages.guarantee import rounded_down, rounded_up, sum_upper
from common.task.task import NONCE_BYTES
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.enumerating import Enumerating
from deploy.audit.finding import Outcome

_FIGURES: Final = 1_000
_SIZES: Final = (1, 2, 3, 5, 16, 17, 100, 257, 1_000)
_EPSILONS: Final = (0.137, 0.5, 1.96, 4.0, 9.87, 19.99)
_EXACT: Final = Context(prec=50)
_CLOSE: Final = Decimal("1e-9")
_HAIR: Final = 1e-6
"""By how much less than its own ε a weight keeps no promise any more."""
_SAME: Final = (0, 16, 64, 200)
"""Characters that two labels share."""
_BUCKETS: Final = 16
_SEEDS: Final = 4_096
_COINS: Final = ((1, 3), (5, 7), (0, 9), (9, 9), (1, 2**20 + 7), (3, 65_536))
_DRAWN_AT_ONCE: Final = 1 << 16


def play_small_rules(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Check them all; little is drawn."""
    del audited
    checks = Checks()
    _check_rounding(checks, rng)
    _check_places(checks, rng)
    _check_labels(checks, rng)
    _check_weights(checks)
    _check_coins(checks)
    _check_answers(checks)
    finding = checks.finding(
        scenario="small-rules",
        title="Small rules that others rely on",
        heading="correctness",
        sentence="Figures of privacy were never rounded down; items kept places of their own; "
        "labels that differ at their end were hashed apart; weights kept what they promise, in "
        "another exact computation; and coins and answers came up as often as they should of all "
        "that can be drawn. Sizes, labels and figures other than those tried are not excluded.",
        advice="Do not collect with this version.",
    )
    return Outcome(findings=(finding,))


def _check_rounding(checks: Checks, rng: np.random.Generator) -> None:
    for figure in (10.0 ** rng.uniform(-12, 3, size=_FIGURES)).tolist():
        written, above, below = (
            Decimal(text) for text in (repr(figure), rounded_up(figure), rounded_down(figure))
        )
        near = written * Decimal("0.002")
        checks.must("a figure is rounded up, by little", 0 <= above - written <= near)
        checks.must("what is left is rounded down, by little", 0 <= written - below <= near)
    for count in (2, 3, 10):
        parts = rng.random(count).tolist()
        exact = sum(Fraction(repr(part)) for part in parts)
        checks.must("a sum of figures is no less", Fraction(repr(sum_upper(parts))) >= exact)


def _check_places(checks: Checks, rng: np.random.Generator) -> None:
    for size in _SIZES:
        items = np.arange(size, dtype=np.int64)
        placed = [Placement(size, rng.bytes(NONCE_BYTES))(items) for _ in range(2)]
        checks.must(
            "every item has a place of its own",
            all(np.array_equal(np.sort(places), items) for places in placed),
        )
    checks.must("another task places its items otherwise", not np.array_equal(placed[0], placed[1]))


def _check_labels(checks: Checks, rng: np.random.Generator) -> None:
    """Two labels, or two tasks, share as many buckets as chance has them share."""
    candidates = tuple("x" * same + end for same in _SAME for end in ("a", "b"))
    weights = ResponseWeights.for_epsilon(1.0)
    hashed = [
        StringHashing(candidates, _BUCKETS, weights, rng.bytes(NONCE_BYTES)) for _ in range(2)
    ]
    reports = hashed[0].dummies(_SEEDS, rng)
    first, other = (
        np.array([each.hashed(reports, item) for item in range(len(candidates))]) for each in hashed
    )
    for place, same in enumerate(_SAME):
        equal = int((first[2 * place] == first[2 * place + 1]).sum())
        checks.test(
            f"labels that differ after {same} characters are hashed apart",
            fit.of_chance(equal, _SEEDS, 1 / _BUCKETS),
        )
    equal = int((first[0] == other[0]).sum())
    checks.test(
        "another task hashes its labels otherwise", fit.of_chance(equal, _SEEDS, 1 / _BUCKETS)
    )


def _check_weights(checks: Checks) -> None:
    for epsilon in _EPSILONS:
        promise = _EXACT.exp(Decimal(epsilon))
        weights = ResponseWeights.for_epsilon(epsilon)
        odds = _EXACT.divide(Decimal(weights.true), Decimal(weights.other))
        checks.must("weights keep their promise, and hardly less", 0 <= 1 - odds / promise < _CLOSE)
        more = ResponseWeights(true=weights.true + 1, other=weights.other)
        checks.must("weights that keep a promise are told so", weights.keeps_promise(epsilon))
        checks.must("weights that break one are told so", not more.keeps_promise(epsilon))
        for unary in (OptimizedUnary, SymmetricUnary):
            made = unary(4, unary.weights_for(epsilon))
            checks.must(
                "a unary encoding keeps its promise, and none a hair smaller",
                made.keeps_promise(epsilon) and not made.keeps_promise(epsilon * (1 - _HAIR)),
            )


def _check_coins(checks: Checks) -> None:
    """Over all of 2^16 first draws; where one does not decide, over 65,536 second ones at most."""
    first = np.arange(_DRAWN_AT_ONCE, dtype=np.int64)
    for weight, total in _COINS:
        threshold, rest = divmod(weight << 16, total)
        doubts = np.arange(min(_DRAWN_AT_ONCE, total), dtype=np.int64)
        whole = Enumerating([first, np.array([total - 1])])
        heads = int(_toss(weight, total, len(first), whole).sum())
        checks.must("a coin comes up as often as 16 bits can decide", heads == threshold)
        checks.must(
            "and is decided by an integer below its total where they cannot",
            whole.bounds == [_DRAWN_AT_ONCE] + [total] * (rest > 0),
        )
        if rest:
            split = Enumerating([np.full(len(doubts), threshold), doubts])
            heads = int(_toss(weight, total, len(doubts), split).sum())
            checks.must("which decides it exactly", heads == min(rest, len(doubts)))


def _toss(weight: int, total: int, count: int, rng: Enumerating) -> NDArray[np.bool_]:
    """Toss coins; none comes up where something else than integers was asked for."""
    try:
        return exact_coins(weight, total, (count,), rng)
    except (TypeError, IndexError):
        return np.zeros(0, dtype=np.bool_)


def _check_answers(checks: Checks) -> None:
    """Of all that can be drawn, randomized response makes what its weights say."""
    answers, weights = 5, ResponseWeights(true=7, other=2)
    total = weights.total(answers)
    for truth in range(answers):
        rng = Enumerating([np.arange(total)])
        given = _respond(weights, np.full(total, truth), answers, rng)
        expected = np.full(answers, weights.other)
        expected[truth] = weights.true
        exact = np.array_equal(np.bincount(given, minlength=answers), expected)
        checks.must("randomized response answers by its weights exactly", exact)
    large = ResponseWeights.for_epsilon(9.87)
    edges = np.array([0, large.true - 1, large.true, large.total(answers) - 1])
    rng = Enumerating([edges])
    given = _respond(large, np.zeros(len(edges), dtype=np.int64), answers, rng)
    checks.must(
        "so it does at the edges of large weights, of one integer below their sum",
        given.tolist() == [0, 0, 1, answers - 1] and rng.bounds == [large.total(answers)],
    )


def _respond(
    weights: ResponseWeights, truth: NDArray[np.int64], answers: int, rng: Enumerating
) -> NDArray[np.int64]:
    """Answer; nothing where something else than integers was asked for."""
    try:
        return weights.respond(truth, answers, rng)
    except (TypeError, IndexError):
        return np.zeros(0, dtype=np.int64)
