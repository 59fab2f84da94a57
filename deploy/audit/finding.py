"""One row of an audit: what was claimed, what was measured, and what that says."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Heading = Literal["anonymity", "correctness", "sender disruption", "server disruption"]
"""
Anonymity: what a coalition learns of one person. Correctness: whether the code draws, counts and
promises what it says. Sender disruption: what dishonest users do to the result. Server disruption:
what a dishonest shuffler or analyzer does to it.
"""

HEADINGS: Final[tuple[Heading, ...]] = (
    "anonymity",
    "correctness",
    "sender disruption",
    "server disruption",
)

Verdict = Literal[
    "reached",
    "not reached",
    "not contradicted",
    "contradicted",
    "refuted",
    "not refuted",
    "holds",
    "broken",
    "known limit",
]

PASSING: Final = frozenset({"reached", "not contradicted", "refuted", "holds", "known limit"})

VERDICTS_IN_WORDS: Final = MappingProxyType(
    {
        "reached": "an attack gets nine tenths of what is claimed or more, computed or measured: "
        "hardly less can be claimed",
        "not reached": "an attack that is known to succeed did not: the audit is broken",
        "not contradicted": "no attack tried gets more than what is claimed; see what it could see",
        "contradicted": "an attack gets more than what is claimed: the claim is false",
        "refuted": "a claim that is known to be false was shown to be",
        "not refuted": "a claim that is known to be false was not shown to be: the audit is broken",
        "holds": "what must be true was checked, and is",
        "broken": "what must be true is not",
        "known limit": "an attack that nothing here prevents; what it gains is as calculated",
    }
)
"""What each verdict says, for a reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row: a scenario, against one coalition."""

    scenario: str
    """The scenario's name; several rows may share it."""
    title: str
    """What was done, in a few words."""
    heading: Heading
    coalition: str
    """Who pools what they saw; `nobody` where the running code itself is what is checked."""
    verdict: Verdict
    sentence: str
    """What it means, in plain words."""
    subject: str = ""
    """What was played on, where that is not the audited task: another design, to compare with."""
    aside: bool = False
    """Whether it is on more tasks than one, or on fewer people: no figure of this task alone."""
    advice: str = ""
    """What to change if it is not good enough."""
    claim_epsilon: float | None = None
    """What is claimed; infinite where nothing is."""
    delta: float | None = None
    """At which all of the row's ε are to be read."""
    theorem: str = ""
    """What the claim follows from."""
    neighbouring: str = ""
    """Which two data sets the claim tells apart."""
    assumptions: tuple[str, ...] = ()
    """What must be true for the claim to hold, in words."""
    exact_epsilon: float | None = None
    """What the attack gains, computed; where only a bound from below can be, that."""
    empirical_epsilon_lower: float | None = None
    """What the attack gained, measured: a bound from below at the row's confidence."""
    ceiling: float | None = None
    """What so many trials could show at most, of an attack that is never wrong."""
    confidence: float | None = None
    trials: int = 0
    """Collections, reports or orders that were drawn to measure it."""
    advantage: float | None = None
    """How often the best guess is right under one value, less how often it is wrong under the
    other; an estimate."""
    statistic: str = ""
    """What was measured, and how."""
    expected: float | None = None
    """What a formula says, where something else than an ε is measured."""
    measured: float | None = None
    tests: int = 0
    """Statistical decisions in this row; each errs with probability TEST_LEVEL at most."""
    roc: tuple[tuple[float, float], ...] = ()
    """Points of (false, true) positive rates, measured."""

    def __post_init__(self) -> None:
        for name, figure in (
            ("claim_epsilon", self.claim_epsilon),
            ("exact_epsilon", self.exact_epsilon),
            ("empirical_epsilon_lower", self.empirical_epsilon_lower),
        ):
            if figure is not None and not figure >= 0:
                raise ValueError(f"{name} of {self.scenario} is {figure}; it must be at least 0")
        known = (self.theorem, self.neighbouring, self.assumptions, self.delta is not None)
        if self.claim_epsilon is not None and not all(known):
            raise ValueError(
                f"the claim of {self.scenario} needs its delta, neighbouring, theorem and "
                "assumptions"
            )

    @property
    def passed(self) -> bool:
        """Whether it is as it must be."""
        return self.verdict in PASSING


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What holds and what is known at one share of colluding users."""

    colluding: float
    """Share of the users, 0 .. 1."""
    honest: int
    """Users who are left, the victim among them."""
    claim: float
    """An upper bound of ε."""
    attack: float | None
    """A lower bound of ε, computed."""
    measured: float | None = None
    """A lower bound of ε, measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """ε against the colluding fraction."""

    title: str
    delta: float
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one scenario came to."""

    findings: tuple[Finding, ...]
    curves: tuple[Curve, ...] = ()
    seconds: float = 0.0
    """That it took."""
