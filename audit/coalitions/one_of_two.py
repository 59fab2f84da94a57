"""
A dishonest one of two shufflers, with the analyzer: each behaviour against the claim of its row.

The running honest shuffler shows how often the victim's report is in each different batch that it
sends, whatever it was sent. The rest of each batch is known, but for the honest shuffler's noise,
which the deployed code draws a million times. Then the counts of the two items are all the evidence
on which of them the victim holds, and the likelihood ratio is the most powerful statistic.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from audit.coalitions.single_user import TESTED_DELTA
from audit.families.noise import noise_chances
from audit.finding import Checks, Finding, Rows
from audit.game import Scores, game_row, not_reached, run_game
from audit.harness.chain_run import ChainRun, Layers, Seen
from audit.harness.logs import quiet_services
from audit.harness.tasks import reduced_draft
from audit.scenario import AuditSubject, Ports
from audit.statistics import TEST_LEVEL, p_rank, p_rank_sum
from common.accounting.guarantees import PrivacyParameters, guarantees_under
from common.mechanisms.base import Vector
from common.messages.guarantee import Coalition, Guarantee, rounded_down, rounded_up
from common.task.shuffler_spec import ShufflerSpec
from common.task.task import Task

_MAX_REPORTS: Final = 2500
_USERS: Final = (16, 64)
_COPIES: Final = 50
_LOST: Final = 5
_ABORTS: Final = 4
_MORE_TESTS: Final = 3
"""Of the order, and of the noise in the run."""
_TOGETHER: Final = 1_000_000
"""Trials that are drawn together."""
_MOST_TRIALS: Final = 10_000_000
_CERTAIN_SCORE: Final = 1e100
_COALITIONS: Final[tuple[Coalition, ...]] = ("analyzer+second-shuffler", "analyzer+first-shuffler")
"""The dishonest coalition, by the place of the honest shuffler."""
_PUBLISHED: Final = "The first shuffler finds the victim in the published result"
_STATISTIC: Final = "likelihood ratio of the counts of the victim's two items"
_Draw = Callable[[ShufflerSpec, int, Generator], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOfTwo:
    """A behaviour of the dishonest one of two shufflers."""

    title: str
    sentence: str
    sends: Callable[[ChainRun], Sequence[Layers]] | None = None
    """Deliveries of the first shuffler; None for a behaviour of the second."""
    refused: int = 0
    """How many of them must be refused."""
    aborts: int = 0
    """Deliveries to the second shuffler that it aborts at their end."""
    forget: int = 0
    """Layers that it leaves out."""
    published: bool = False
    """Whether the published result would do instead of the analyzer."""

    @property
    def honest(self) -> int:
        """Place of the honest shuffler."""
        return int(self.sends is not None)

    async def run(self, run: ChainRun, ports: Ports) -> Seen:
        """Run the honest shuffler."""
        if self.sends:
            return await run.behind_relay(ports.relay, *self.sends(run))
        return await run.before_relay(ports.first_shuffler, aborts=self.aborts, forget=self.forget)

    def findings(self, subject: AuditSubject, rng: Generator) -> Rows:
        """Run the honest shuffler, then the game on what it sent."""
        with _running(subject, rng) as run:
            seen = asyncio.run(self.run(run, subject.ports))
        worlds = self.worlds(subject, seen, subject.ports.draw_item_dummies, rng)
        checks, chances = Checks(), noise_chances(run.task.hop(self.honest).noise)
        checks.test("the noise of each item", _p_noise(seen.noise.ravel(), chances))
        checks.require("another input is refused", seen.refused == self.refused)
        for coalition in (_COALITIONS[self.honest], *["either-shuffler"] * self.published):
            row = self.row(subject, coalition, worlds)
            if coalition == "either-shuffler":
                row = replace(row, title=_PUBLISHED)
            if checks.failures and row.passed:
                sentence = f"Failed: {'; '.join(checks.failures)}."
                row = replace(row, verdict="broken", sentence=sentence)
            yield replace(row, tests=row.tests + _MORE_TESTS)

    def worlds(
        self, subject: AuditSubject, seen: Seen, draw: _Draw, rng: Generator
    ) -> tuple[Scores, Scores]:
        """Draw the log likelihood ratios under the victim's item, then under the other."""
        spec, trials = _chain(subject).hop(self.honest), min(subject.sizes.games, _MOST_TRIALS)
        users = seen.order >= 0
        ordered = (p_rank(seen.order[users]), p_rank_sum(users))
        known = min(ordered) < TEST_LEVEL  # then the place of the victim's report is known
        sizes = [min(_TOGETHER, trials - start) for start in range(0, trials, _TOGETHER)]

        def world(sign: int) -> Scores:
            parts = [_scores(spec, seen.times, n, draw, rng) for n in sizes]
            return sign * (np.concatenate(parts) + known * _CERTAIN_SCORE)

        return world(1), world(-1)

    def row(self, subject: AuditSubject, coalition: str, worlds: tuple[Scores, Scores]) -> Finding:
        """Return the finding at the task's δ, or at a larger one if the attack gains more there."""
        task, rows = _chain(subject), list[Finding]()
        for delta in (task.delta, max(task.delta, TESTED_DELTA)):
            claimed = _claim(subject, coalition, delta)
            result = run_game(
                *worlds, delta=delta, at_epsilon=claimed.epsilon, statistic=_STATISTIC
            )
            row = game_row(
                claimed=claimed,
                result=result,
                title=self.title,
                sentence=self.sentence,
                subject=subject.chain_name,
            )
            rows.append(row)
        stated, tested = rows
        if stated.passed and not tested.passed:
            return tested
        gained, epsilon = tested.empirical_delta_lower or 0.0, tested.claim_epsilon or 0.0
        also = (
            f"at ε = {rounded_up(epsilon)}, where δ = {tested.delta} is claimed, it gains "
            f"δ = {rounded_down(gained)}"
        )
        tests = stated.tests + tested.tests
        return replace(stated, statistic=f"{stated.statistic}; {also}", tests=tests)


def _p_noise(numbers: NDArray[np.int64], chances: Vector) -> float:
    """Test by Fisher's method whether items have too few noise reports; discrete, so it errs up."""
    below = np.cumsum(chances)[np.minimum(numbers, len(chances) - 1)]
    return float(stats.combine_pvalues(np.minimum(below, 1.0)).pvalue)


def _chain(subject: AuditSubject) -> Task:
    if subject.chain is None:
        raise ValueError("there is no task with two shufflers")
    return subject.chain


def _claim(subject: AuditSubject, coalition: str, delta: float) -> Guarantee:
    """Return the row of a coalition in the table of guarantees."""
    parameters = replace(PrivacyParameters.of(_chain(subject)), delta=delta)
    rows = guarantees_under(parameters, subject.n_users)
    return next(row for row in rows if row.coalition == coalition)


def _scores(
    spec: ShufflerSpec, times: tuple[int, ...], trials: int, draw: _Draw, rng: Generator
) -> Scores:
    """
    Draw the log odds of the item that the victim holds against the other, over all batches.

    With its report c times in a batch, a count k of noise with chances g is as likely as
    g(k-c) / g(k) with the report, compared to without.
    """
    chances, score = noise_chances(spec.noise), np.zeros(trials)
    for count in times:
        with_it = np.concatenate([np.zeros(count), chances])
        without = np.concatenate([chances, np.zeros(count)])
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(with_it) - np.log(without)
        odds = np.nan_to_num(odds, nan=0.0, posinf=_CERTAIN_SCORE, neginf=-_CERTAIN_SCORE)
        own, other = draw(spec, 2 * trials, rng).reshape(2, trials)
        score += odds[own + count] - odds[other]
    return score


@contextmanager
def _running(subject: AuditSubject, rng: Generator) -> Iterator[ChainRun]:
    """Yield the task reduced to a few users, in an empty directory."""
    draft = reduced_draft(_chain(subject), most_reports=_MAX_REPORTS, n_users=_USERS)
    if draft is None:
        raise ValueError("no small batch of this task has a finite guarantee")
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder, quiet_services():
        yield ChainRun(Path(folder), draft, rng)


BEHAVIOURS: Final = {
    "first-shuffler-isolates": OneOfTwo(
        title="The first shuffler forwards the victim alone",
        sentence="The second shuffler's noise hides a report that comes without any other user's.",
        sends=lambda run: [run.layers[:1]],
        published=True,
    ),
    "first-shuffler-repeats": OneOfTwo(
        title=f"The first shuffler forwards the victim {_COPIES} times",
        sentence="The second shuffler drops repeated layers, so that the victim counts once.",
        sends=lambda run: [_COPIES * run.layers[:1]],
    ),
    "first-shuffler-invents": OneOfTwo(
        title="The first shuffler replaces all other users by made-up ones",
        sentence="The second shuffler's noise needs no other user.",
        sends=lambda run: [run.layers[:1] + run.sealed(len(run.layers) - 1)],
    ),
    "first-shuffler-drops": OneOfTwo(
        title="The first shuffler drops users of its choice",
        sentence="Fewer users leave the second shuffler's noise as it is.",
        sends=lambda run: [run.layers[::2]],
    ),
    "first-shuffler-delivers-again": OneOfTwo(
        title="The first shuffler delivers a task again, without one user and unchanged",
        sentence="The second shuffler refuses another input and sends no second batch, so that "
        "its noise is drawn once.",
        sends=lambda run: [run.layers, run.layers[:-1], run.layers],
        refused=1,
    ),
    "second-shuffler-drops": OneOfTwo(
        title="The second shuffler drops layers",
        sentence="The first shuffler's noise is in what it sent, whatever is lost afterwards.",
        forget=_LOST,
    ),
    "second-shuffler-repeats": OneOfTwo(
        title="The second shuffler repeats what it received",
        sentence="The first shuffler's noise reports look like users' and are repeated with them.",
    ),
    "second-shuffler-keeps-order": OneOfTwo(
        title="The second shuffler keeps the order of the batch",
        sentence="The order that arrives from the first shuffler is unrelated to its users'.",
    ),
    "second-shuffler-retries": OneOfTwo(
        title=f"The second shuffler aborts the delivery {_ABORTS} times, and asks again",
        sentence="The first shuffler sends the recorded batch again, and draws no second noise.",
        aborts=_ABORTS,
    ),
}
"""The behaviours, by the name of their scenario."""


def attack(name: str, subject: AuditSubject, rng: Generator) -> Rows:
    """Attack the subject's task with two shufflers by a behaviour."""
    return BEHAVIOURS[name].findings(subject, rng)


def run_permuting(subject: AuditSubject, rng: Generator) -> Rows:
    """Refute the claims for shufflers that only permute, by the same attacks."""
    draw, once = subject.ports.draw_nothing, np.zeros(0, dtype=np.int64)
    small = replace(subject, sizes=replace(subject.sizes, games=subject.sizes.games // 10))
    for honest, coalition in enumerate(_COALITIONS):
        tried = [each for each in BEHAVIOURS.values() if each.honest == honest]
        rows = list[Finding]()
        for each in tried:
            seen = Seen(times=(1,), noise=once, order=once)
            rows.append(each.row(small, coalition, each.worlds(small, seen, draw, rng)))
        weakest = min(rows, key=lambda row: row.empirical_epsilon_lower or 0.0)
        broken = {row.verdict for row in rows} == {"contradicted"}
        row = replace(
            weakest,
            title=f"{len(rows)} behaviours, if the honest shuffler only permuted",
            subject="two shufflers that only permute",
            tests=sum(row.tests for row in rows),
            advice="",
        )
        yield replace(
            row if broken else not_reached(row),
            verdict="refuted" if broken else "not refuted",
            sentence="Without noise of its own, an honest shuffler hides nobody from the other "
            "one and the analyzer: each of these attacks reads the value.",
        )


def run_forged_tree(subject: AuditSubject, rng: Generator) -> Rows:
    """Show a device a commitment to 2^40 leaves, by each party whose signature it might accept."""
    checks, asked = Checks(), list[int]()
    with _running(subject, rng) as run:
        for name, signer in (("the analyzer", run.analyzer), ("the second shuffler", run.second)):
            shown, buckets = asyncio.run(run.asked_about(signer, subject.ports.device_store))
            checks.require(f"the tree that {name} signed is looked at", shown > 0)
            checks.require(f"no bucket of a tree that {name} signed is asked for", not buckets)
            asked += buckets
    yield checks.finding(
        coalition=_COALITIONS[1],
        subject=subject.chain_name,
        title="The first shuffler shows devices a tree of 2^40 leaves",
        sentence="A bucket of a tree so large would name one report. Devices refuse more leaves "
        "than the task's users and noise explain, and ask for none.",
        expected=0.0,
        measured=float(len(asked)),
        trials=2,
        advice="Do not collect with this version: devices tell which report is theirs.",
    )
