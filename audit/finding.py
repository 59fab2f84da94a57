"""
One finding of an audit, the claim, the measurement and the verdict, and the distinguishing game.

The game: which of two values does the victim hold? The adversary's view is drawn many times under
each value and reduced to a score: the higher the score, the likelier the first value. A quarter of
the draws serves to choose a threshold, the rest to measure it. Guessing "the first" at or above the
threshold is right with probability t under the first value and wrong with probability f under the
second. (ε, δ) allows t ≤ e^ε·f + δ, so ε is at least ln((t - δ) / f), and bounds on t and f bound ε
[JE19]; likewise for "the second" below it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shuffledp.audit import statistics
from shuffledp.common.messages.guarantee import Guarantee, rounded_down

Heading = Literal["anonymity", "correctness", "sender disruption", "server disruption"]
"""Headings of the report, in order; pages/audit.html describes them."""

_Passing = Literal["tight", "not contradicted", "refuted", "holds"]
_Limit = Literal["unprotected", "not attacked", "not covered", "known limit"]
Verdict = Literal[_Passing, _Limit, "not reached", "contradicted", "not refuted", "broken", "error"]
LIMITS: Final[frozenset[str]] = frozenset(get_args(_Limit))
"""Verdicts that pass, and are limits of the audit or of the protection."""
UNTESTED: Final[tuple[Verdict, ...]] = ("not attacked", "not covered")
"""Verdicts of checks that tested nothing."""
PASSING: Final[frozenset[str]] = LIMITS | frozenset(get_args(_Passing))

VERDICT_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "tight": "an attack gains 90\N{NO-BREAK SPACE}% of the claim or more, computed or measured: no "
    "much smaller claim would hold",
    "unprotected": "nothing is claimed, and an attack gains nearly all that a run could show",
    "not reached": "an attack that is known to succeed did not: the audit is broken",
    "not contradicted": "no attack tried gains more than the claim; see the ceiling",
    "not attacked": "no attack on this claim was run: it rests on its proof alone",
    "not covered": "the audit has no reference for this mechanism: nothing was tested",
    "contradicted": "an attack gains more than the claim: the claim is false",
    "refuted": "a claim known to be false was refuted",
    "not refuted": "a claim known to be false was not refuted: the audit is broken",
    "holds": "a check of something that must be true passed",
    "broken": "a check of something that must be true failed",
    "error": "the check stopped with an error: its result is unknown",
    "known limit": "an attack that nothing here prevents; its gain is as calculated",
}
Scores = NDArray[np.float64]

_THRESHOLD_SHARE: Final = 0.25
_THRESHOLDS: Final = 400
_DIGITS: Final = 9
_TIGHT_SHARE: Final = 0.9
"""Share of a claim, or of the ceiling if nothing is claimed, that a strong attack gains."""
_REQUIRED_SHARE: Final = 0.75
"""Share of its ε that a known attack must show: ten standard deviations below the expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result against one coalition. All ε are at `delta`."""

    scenario: str = ""
    """Name of the scenario, set by the runner."""
    title: str = ""
    """By default, the scenario's title."""
    heading: Heading = "anonymity"
    coalition: str = "nobody"
    """Parties that pool their views; `nobody` for a check of the running code itself."""
    verdict: Verdict
    sentence: str
    """Meaning of the verdict."""
    subject: str = ""
    """Name of the attacked design, if it is not the audited task."""
    aside: bool = False
    """Whether the claim is for several rounds or fewer users, and not the task's own."""
    advice: str = ""
    claim_epsilon: float | None = None
    """Claimed ε; infinite if nothing is claimed."""
    delta: float | None = None
    theorem: str = ""
    neighbouring: str = ""
    assumptions: tuple[str, ...] = ()
    exact_epsilon: float | None = None
    """Computed ε that the attack reaches: exact, or a lower bound."""
    empirical_epsilon_lower: float | None = None
    """Measured lower bound on the ε that the attack reached, at the finding's confidence."""
    empirical_delta_lower: float | None = None
    """Measured lower bound on δ at the claimed ε, at the finding's confidence, if measured."""
    ceiling: float | None = None
    """ε that a perfect attack would show in this number of trials."""
    confidence: float | None = None
    trials: int = 0
    advantage: float | None = None
    """True positive rate minus false positive rate of the best guess; an estimate."""
    statistic: str = ""
    """Attack statistic, or summary of the statistical tests."""
    expected: float | None = None
    """Value by a formula, if the measured quantity is not an ε."""
    measured: float | None = None
    tests: int = 0

    def __post_init__(self) -> None:
        known = (self.theorem, self.neighbouring, self.assumptions, self.delta is not None)
        if self.claim_epsilon is not None and not all(known):
            raise ValueError("a claim needs its delta, neighbouring, theorem and assumptions")

    @property
    def passed(self) -> bool:
        """Whether the verdict is not a failure."""
        return self.verdict in PASSING


Rows = Iterable[Finding]
Findings = tuple[Finding, ...]


def failed(rows: Rows) -> Findings:
    """Return the findings that did not pass."""
    return tuple(row for row in rows if not row.passed)


class Checks:
    """Statistical tests and facts that form one finding."""

    def __init__(self) -> None:
        self._tests: dict[str, float] = {}
        self._n_tests = 0
        self._facts: dict[str, bool] = {}

    def test(self, name: str, p_value: float | None) -> None:
        """Add a test; the smallest p-value per name counts. None is ignored, and NaN fails."""
        if p_value is None:
            return
        self._n_tests += 1
        level = 0.0 if math.isnan(p_value) else p_value
        self._tests[name] = min(level, self._tests.get(name, 1.0))

    def cells(self, name: str, drawn: NDArray[np.int64], chances: NDArray[np.float64]) -> None:
        """Test cell numbers in 0 .. k-1, shape (n,), against relative probabilities, shape (k,)."""
        inside = bool(((drawn >= 0) & (drawn < len(chances))).all())
        self.require(f"{name}: within the range", inside)
        if inside and len(chances) > 1:
            self.test(name, statistics.p_cells(np.bincount(drawn, minlength=len(chances)), chances))

    def require(self, name: str, holds: bool) -> None:  # noqa: FBT001  # the checked fact
        """Add a fact that must hold for every draw."""
        self._facts[name] = holds and self._facts.get(name, True)

    @contextmanager
    def refused(self, name: str, cause: type[Exception]) -> Iterator[None]:
        """Require that the block fails with an error of the class `cause`."""
        refused = True
        with suppress(cause):
            yield
            refused = False
        self.require(name, refused)

    @property
    def failures(self) -> list[str]:
        """Names of the tests and facts that failed."""
        return [
            *(name for name, holds in self._facts.items() if not holds),
            *(name for name, p_value in self._tests.items() if p_value < statistics.TEST_LEVEL),
        ]

    def finding(
        self,
        *,
        sentence: str,
        known_limit: bool = False,
        advice: str = "",
        notes: Iterable[str] = (),
        **fields: Any,  # noqa: ANN401  # fields of a Finding
    ) -> Finding:
        """Create the finding, which names all failures; `advice` is kept only if there are any."""
        failures, statistic = self.failures, list(notes)
        passing: Verdict = "known limit" if known_limit else "holds"
        if self._tests:
            name = min(self._tests, key=lambda test: self._tests[test])
            figures = f"tests: {self._n_tests}, smallest p: {self._tests[name]:.2g} ({name})"
            statistic.append(figures)
        if self._facts:
            statistic.append(f"facts checked: {len(self._facts)}")
        return Finding(
            verdict="broken" if failures else passing,
            sentence=f"Failed: {'; '.join(failures)}." if failures else sentence,
            advice=advice if failures else "",
            statistic="; ".join(statistic),
            confidence=statistics.CONFIDENCE if self._n_tests else None,
            tests=self._n_tests,
            **fields,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GameResult:
    """The result of one game; a Finding has the same fields."""

    empirical_epsilon_lower: float
    """Lower bound on ε at δ; wrong with probability at most TEST_LEVEL."""
    ceiling: float
    advantage: float
    trials: int
    """Draws under each value."""
    statistic: str = ""
    empirical_delta_lower: float | None = None
    """Lower bound on δ at the ε of a claim, likewise; None unless asked for."""


def run_game(
    first: Scores,
    second: Scores,
    *,
    delta: float = 0,
    statistic: str = "",
    at_epsilon: float | None = None,
) -> GameResult:
    """
    Compute a lower bound on ε at δ from an attack's scores under each value, shape (trials,).

    With `at_epsilon`, a second test also bounds δ there.
    """
    # Rounding removes the last digits of sums, which depend on the order of the terms.
    first, second = np.round(first, _DIGITS), np.round(second, _DIGITS)
    cut = int(_THRESHOLD_SHARE * len(first))
    thresholds, trials = _thresholds(first[:cut], second[:cut]), len(first) - cut
    chosen = _counts(first[:cut], second[:cut], thresholds) / max(1, cut)
    measured = _counts(first[cut:], second[cut:], thresholds)
    best = int(np.argmax(statistics.epsilon_bounds(chosen * trials, trials, delta)))
    reached = float(statistics.epsilon_bounds(measured[:, best], trials, delta))
    balanced = int(np.argmax(chosen[0] - chosen[1]))
    true, false = measured / trials
    delta_lower = None
    if at_epsilon is not None:
        likely = int(np.argmax(statistics.delta_bounds(chosen * trials, trials, at_epsilon)))
        shown = float(statistics.delta_bounds(measured[:, likely], trials, at_epsilon))
        delta_lower = max(0.0, shown)
    return GameResult(
        empirical_epsilon_lower=max(0.0, reached),
        ceiling=statistics.ceiling(trials, delta),
        advantage=float(true[balanced] - false[balanced]),
        trials=trials,
        statistic=statistic,
        empirical_delta_lower=delta_lower,
    )


def _counts(first: Scores, second: Scores, thresholds: Scores) -> Scores:
    """Count hits and false guesses of "the first" at each threshold, then of "the second"."""
    from_first, from_second = (
        len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
        for scores in (first, second)
    )
    hits = np.concatenate([from_first, len(second) - from_second])
    misses = np.concatenate([from_second, len(first) - from_first])
    return np.stack([hits, misses]).astype(np.float64)


def _thresholds(first: Scores, second: Scores) -> Scores:
    """Spread thresholds over the ranks of the scores, denser towards both ends."""
    scores = np.sort(np.concatenate([first, second]))
    last = len(scores) - 1
    growing = np.geomspace(1, last + 1, _THRESHOLDS // 4) - 1
    ranks = np.concatenate([np.linspace(0, last, _THRESHOLDS // 2), growing, last - growing])
    return np.unique(scores[np.clip(ranks, 0, last).astype(int)])


def game_row(
    *,
    claimed: Guarantee,
    exact: float | None = None,
    result: GameResult | None = None,
    required_epsilon: float = 0.0,
    **fields: Any,  # noqa: ANN401  # fields of a Finding
) -> Finding:
    """
    Create an attack's finding: the claim, and the attack's computed and measured gain, if any.

    If the game shows less than three quarters of `required_epsilon`, which the attack is known to
    reach if the ceiling allows it, the audit is broken: "not reached".
    """
    claim = reachable = claimed.epsilon
    gains = [] if exact is None else [exact]
    measured: dict[str, Any] = {
        "statistic": "no attack computed: none is known for this noise, or it takes minutes"
        if exact is None
        else "computed from the exact distribution of the counts; it succeeds too rarely to measure"
    }
    if result is not None:
        if math.isinf(claim):
            reachable, gains = result.ceiling, []
        gains.append(result.empirical_epsilon_lower)
        tests = 1 + (result.empirical_delta_lower is not None)
        measured = asdict(result) | {"confidence": statistics.CONFIDENCE, "tests": tests}
    of_claim = asdict(claimed)
    of_claim["claim_epsilon"] = of_claim.pop("epsilon")
    gained = max(gains, default=0.0)
    verdict: Verdict = "not contradicted" if gains else "not attacked"
    if gains and gained >= _TIGHT_SHARE * reachable:
        verdict = "unprotected" if math.isinf(claim) else "tight"
    row = Finding(verdict=verdict, exact_epsilon=exact, **of_claim | measured | fields)
    found = row.empirical_delta_lower or 0.0
    if gained > claim or found > claimed.delta:
        return replace(
            row,
            verdict="contradicted",
            sentence=f"The attack gains ε = {gained:.6g}, more than the claimed {claim:.6g}."
            if gained > claim
            else f"The attack gains δ = {found:.6g} at the claimed ε, not {claimed.delta:.6g}.",
            advice="Do not rely on this claim: find the error first.",
        )
    required = _REQUIRED_SHARE * min(required_epsilon, row.ceiling or 0.0)
    return not_reached(row) if (row.empirical_epsilon_lower or 0.0) < required else row


def not_reached(row: Finding) -> Finding:
    """Mark the finding of an attack that should have succeeded and did not."""
    shown = rounded_down(row.empirical_epsilon_lower or 0.0)
    return replace(
        row,
        verdict="not reached",
        sentence=f"An attack that is known to succeed reached only ε = {shown}.",
        advice="Do not rely on this audit.",
    )
