"""
A dishonest one of two shufflers, with the analyzer: each behaviour against the claim of its row.

The running honest shuffler shows how often the victim's report is in each different batch that it
sends, whatever it was sent. The rest of each batch is known, but for the honest shuffler's noise,
which the deployed code draws a million times; if that of the run differs, it is drawn from the run
instead. Then the counts of the two items are all the evidence on which of them the victim holds,
and the likelihood ratio is the most powerful statistic.
"""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from scipy import stats

from shuffledp.audit.coalitions.chain_run import ChainRun, Seen
from shuffledp.audit.coalitions.single_user import TESTED_DELTA
from shuffledp.audit.families.references import noise_chances
from shuffledp.audit.finding import Checks, Finding, Rows, Scores, game_row, run_game
from shuffledp.audit.harness.in_process_run import quiet_services
from shuffledp.audit.scenario import AuditSubject
from shuffledp.audit.statistics import TEST_LEVEL
from shuffledp.common.accounting.guarantees import guarantees_under
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.messages.guarantee import Coalition, rounded_down, rounded_up

_TOGETHER: Final = 1_000_000
"""Trials that are drawn together."""
_MOST_TRIALS: Final = 10_000_000
_CERTAIN: Final = 1e100
_COALITIONS: Final[tuple[Coalition, ...]] = ("analyzer+second-shuffler", "analyzer+first-shuffler")
"""The dishonest coalition, by the place of the honest shuffler."""
_PUBLISHED: Final = "The first shuffler finds the victim in the published result"
_STATISTIC: Final = "likelihood ratio of the counts of the victim's two items"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOfTwo:
    """A behaviour of the dishonest one of two shufflers."""

    title: str
    sentence: str
    run: Callable[[ChainRun], Coroutine[Any, Any, Seen]] = ChainRun.before_relay
    refused: int = 0
    """How many deliveries must be refused."""
    published: bool = False
    """Whether the published result would do instead of the analyzer."""

    def findings(self, subject: AuditSubject, rng: Generator) -> Rows:
        """Run the honest shuffler, then the game on what it sent."""
        checks = Checks()
        with _running(subject, rng) as run, subject.ports.shuffling():
            seen = asyncio.run(self.run(run))
        # Discrete probabilities of as little noise, combined by Fisher's method, err upward.
        below = np.cumsum(noise_chances(run.task.hop(seen.hop).noises[0]))
        below = np.minimum(below[np.minimum(seen.noise, len(below) - 1)], 1)
        fits = float(stats.combine_pvalues(below).pvalue)
        checks.test("the noise of each item", fits)
        checks.require("another input is refused", seen.refused == self.refused)
        worlds = _worlds(subject, seen, rng, deployed=fits >= TEST_LEVEL)
        published = {"either-shuffler": _PUBLISHED} if self.published else {}
        for coalition, title in {_COALITIONS[seen.hop]: "", **published}.items():
            row = replace(self.row(subject, coalition, worlds), title=title)
            if checks.failures and row.passed:
                sentence = f"Failed: {'; '.join(checks.failures)}."
                row = replace(row, verdict="broken", sentence=sentence)
            yield replace(row, tests=row.tests + 3)  # of the order, and of the noise in the run

    def row(self, subject: AuditSubject, coalition: str, worlds: tuple[Scores, ...]) -> Finding:
        """Return the finding at the task's δ, or at a larger one if the attack gains more there."""
        task, rows = subject.chain, list[Finding]()
        for delta in (task.delta, max(task.delta, TESTED_DELTA)):
            parameters = replace(PrivacyParameters.of(task), delta=delta)
            claims = guarantees_under(parameters, subject.n_users)
            claimed = next(claim for claim in claims if claim.coalition == coalition)
            result = run_game(*worlds, delta=delta, at_epsilon=claimed.epsilon)
            row = game_row(claimed=claimed, result=result, sentence=self.sentence)
            rows.append(replace(row, subject=subject.chain_name, statistic=_STATISTIC))
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


def _worlds(
    subject: AuditSubject, seen: Seen, rng: Generator, *, deployed: bool
) -> tuple[Scores, ...]:
    """
    Draw the log odds of the victim's item against the other, then if it holds the other.

    The noise is drawn by the `deployed` code, or else from the numbers that the run added. With its
    report c times in a batch, a count k of noise with chances g is as likely as g(k-c) / g(k) with
    the report, compared to without.
    """
    spec, trials = subject.chain.hop(seen.hop).by_view[0], min(subject.sizes.games, _MOST_TRIALS)
    tables, chances = [], np.bincount(seen.noise) / len(seen.noise)
    draw: Callable[[int], Any] = partial(rng.choice, seen.noise)
    if deployed:
        chances = noise_chances(spec.noise)
        draw = partial(subject.ports.draw_item_dummies, spec, rng=rng)
    for count in seen.times:
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(np.pad(chances, (count, 0))) - np.log(np.pad(chances, (0, count)))
        tables.append((count, np.nan_to_num(odds, nan=0, posinf=_CERTAIN, neginf=-_CERTAIN)))

    def scores(n: int) -> Scores:
        total = np.full(n, seen.known * _CERTAIN)
        for count, odds in tables:
            own, other = draw(2 * n).reshape(2, n)
            total += odds[own + count] - odds[other]
        return total

    sizes = [min(_TOGETHER, trials - start) for start in range(0, trials, _TOGETHER)]
    first, second = (np.concatenate([*map(scores, sizes)]) for _ in range(2))
    return first, -second


@contextmanager
def _running(subject: AuditSubject, rng: Generator) -> Iterator[ChainRun]:
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder, quiet_services():
        yield ChainRun(Path(folder), subject, rng)


BEHAVIOURS: Final = {
    "first-shuffler-isolates": OneOfTwo(
        title="The first shuffler forwards the victim alone",
        sentence="The second shuffler's noise hides a report that comes without any other user's.",
        run=lambda run: run.behind_relay(run.layers[:1]),
        published=True,
    ),
    "first-shuffler-repeats": OneOfTwo(
        title="The first shuffler forwards the victim 50 times",
        sentence="The second shuffler drops repeated layers, so that the victim counts once.",
        run=lambda run: run.behind_relay(50 * run.layers[:1]),
    ),
    "first-shuffler-invents": OneOfTwo(
        title="The first shuffler replaces all other users by made-up ones",
        sentence="The second shuffler's noise needs no other user.",
        run=lambda run: run.behind_relay(run.layers[:1] + run.sealed(len(run.layers) - 1)),
    ),
    "first-shuffler-drops": OneOfTwo(
        title="The first shuffler drops users of its choice",
        sentence="Fewer users leave the second shuffler's noise as it is.",
        run=lambda run: run.behind_relay(run.layers[::2]),
    ),
    "first-shuffler-delivers-again": OneOfTwo(
        title="The first shuffler delivers a task again, without one user and unchanged",
        sentence="The second shuffler refuses another input and sends no second batch, so that "
        "its noise is drawn once.",
        run=lambda run: run.behind_relay(run.layers, run.layers[:-1], run.layers),
        refused=1,
    ),
    "second-shuffler-delivers": OneOfTwo(
        title="The second shuffler drops reports, repeats them or keeps their order",
        sentence="Whatever the second shuffler makes of the batch that it receives shows no more "
        "than that batch, which this attack reads: the first shuffler's noise is in it, and its "
        "order is unrelated to its users'.",
        run=lambda run: run.before_relay(forget=5),
    ),
    "second-shuffler-retries": OneOfTwo(
        title="The second shuffler aborts the delivery 4 times, and asks again",
        sentence="The first shuffler sends the recorded batch again, and draws no second noise.",
        run=lambda run: run.before_relay(aborts=4),
    ),
}
"""The behaviours, by the name of their scenario."""


def run_permuting(subject: AuditSubject, rng: Generator) -> Rows:
    """Refute the claims for shufflers that only permute, by each behaviour against such a one."""
    with _running(subject, rng) as run, subject.ports.permuting():
        runs = [(each, asyncio.run(each.run(run))) for each in BEHAVIOURS.values()]
    for behaviour, seen in runs:
        worlds = _worlds(subject, seen, rng, deployed=bool(seen.noise.any()))
        row = behaviour.row(subject, _COALITIONS[seen.hop], worlds)
        broken = row.verdict == "contradicted"
        yield replace(
            row,
            title=behaviour.title,
            subject="two shufflers that only permute",
            verdict="refuted" if broken else "not refuted",
            sentence="Without noise of its own, an honest shuffler hides nobody from the other "
            "one and the analyzer: this attack reads the value.",
            advice="" if broken else "Do not rely on this audit.",
        )


def run_forged_tree(subject: AuditSubject, rng: Generator) -> Rows:
    """Show a device a commitment to 2^40 leaves, by each party whose signature it might accept."""
    checks, found = Checks(), 0
    with _running(subject, rng) as run:
        for name, signer in (("the analyzer", run.analyzer), ("the second shuffler", run.second)):
            asked = asyncio.run(run.asked_about(signer))
            found += len(asked) - asked.count(None)
            checks.require(f"the tree that {name} signed is looked at", None in asked)
            checks.require(f"no bucket that {name} signed is asked for", {*asked} <= {None})
    yield checks.finding(
        coalition=_COALITIONS[1],
        subject=subject.chain_name,
        sentence="A bucket of a tree so large would name one report. Devices refuse more leaves "
        "than the task's users and noise explain, and ask for none.",
        expected=0.0,
        measured=float(found),
        trials=2,
        advice="Do not collect with this version: devices tell which report is theirs.",
    )
