"""A dishonest one of two shufflers. Seeds are fixed; a bound errs with TEST_LEVEL."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.audit.coalitions.one_of_two import BEHAVIOURS, run_permuting
from shuffledp.audit.finding import Finding, failed
from shuffledp.audit.harness.tasks import sample_chain
from shuffledp.audit.runner import AuditRun, run
from shuffledp.audit.scenario import AuditSubject, Scenario
from shuffledp.audit.scenarios import SCENARIOS
from shuffledp.audit.weaknesses import NOISE_AFTER_ALL, PERMUTES_ONLY
from shuffledp.common.task.shuffler_spec import BinomialNoise, GeometricNoise
from shuffledp.common.task.task import Task
from tests.support.audits import audited
from tests.support.chains import COINS, FLANKS, chain
from tests.support.tasks import published

_WIDE = GeometricNoise(peak=60, left_weight=3 * 2**28, right_weight=3 * 2**28, most=120)
_UNEQUAL = chain(FLANKS, _WIDE)
_TWO = [one for one in SCENARIOS if one.shufflers == (2,)]


def _is_like_another(scenario: Scenario) -> bool:
    """Return whether a scenario has the weakness of another one, or a test of its own."""
    tested_elsewhere = scenario.weakness in {PERMUTES_ONLY, NOISE_AFTER_ALL}
    return tested_elsewhere and not scenario.name.endswith("isolates")


def _subject(task: Task, games: int = 20_000) -> AuditSubject:
    return audited(task, games=games)


def _task(**fields: object) -> Task:
    sizes = {"domain_size": 3, "n_min": 100, "target_size": 100}
    return published(**_UNEQUAL | sizes | fields).task


@pytest.fixture(scope="module")
def unequal() -> AuditSubject:
    """A task whose second shuffler adds the wider noise."""
    return _subject(_task(), games=200_000)


@pytest.mark.parametrize(
    ("name", "claim"),
    [("first-shuffler-isolates", math.log(16 / 9)), ("second-shuffler-delivers", math.log(4))],
)
def test_a_dishonest_shuffler_gains_what_the_others_noise_allows(
    unequal: AuditSubject, name: str, claim: float
) -> None:
    """Nine tenths of the row of the other's noise at least, and the δ that it shows is no more."""
    [row, *others] = BEHAVIOURS[name].findings(unequal, np.random.default_rng(1))

    assert "tight" == row.verdict
    assert claim == pytest.approx(row.claim_epsilon, rel=1e-3)
    assert (row.delta or 0.0) >= (row.empirical_delta_lower or 0.0)
    assert all(other.passed for other in others)


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(one, marks=[pytest.mark.slow] * _is_like_another(one)) for one in _TWO],
    ids=lambda one: one.name,
)
def test_each_behaviour_stays_below_its_claim_and_its_weakness_is_detected(
    scenario: Scenario,
) -> None:
    """With few draws: every weakness shows in each of them."""
    whole = AuditRun(subject=_subject(_task()), seed=1, scenarios=[scenario], processes=1)
    [result] = whole.self_test()

    assert result.detected, result.outcome


def test_noise_that_falls_short_is_noticed() -> None:
    """A shuffler that adds half of its coins is found at a larger δ, at which games have power."""
    coins = {**chain(COINS), "domain_size": 3, "n_min": 100, "target_size": 100}
    subject = _subject(published(**coins).task, games=200_000)
    behaviour = BEHAVIOURS["second-shuffler-delivers"]

    def rows(coins: int) -> Finding:
        weak = replace(COINS, trials=coins)
        worlds = [
            np.sign(1.5 - world) * (pair[0] + 1 - pair[1])
            for world, pair in (
                (world, weak.draw(400_000, rng).reshape(2, -1).astype(float))
                for world, rng in ((1, np.random.default_rng(3)), (2, np.random.default_rng(4)))
            )
        ]
        return behaviour.row(subject, "analyzer+second-shuffler", (worlds[0], worlds[1]))

    assert rows(200).passed
    assert ("contradicted", 0.01) == (rows(50).verdict, rows(50).delta)


@pytest.mark.parametrize(
    ("name", "dummies"),
    [("first-shuffler-drops", (0, 0, 0)), ("second-shuffler-delivers", (3, 4, 5))],
)
def test_the_game_is_on_the_noise_of_the_run(
    name: str, dummies: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little noise at the honest shuffler is found, although its distribution is right."""

    def draw(_task: Task, _hop: int, _seed: bytes) -> NDArray[np.int64]:
        return np.array(dummies)

    monkeypatch.setattr("shuffledp.shuffler.shuffle_job._draw_dummies", draw)
    [row] = BEHAVIOURS[name].findings(_subject(_task()), np.random.default_rng(1))

    assert "contradicted" == row.verdict


@pytest.mark.slow
@pytest.mark.parametrize("noise", [FLANKS, COINS], ids=["sageo", "sbin"])
def test_a_task_with_two_shufflers_passes_every_scenario_and_its_self_test(
    noise: GeometricNoise | BinomialNoise,
) -> None:
    """Those for one shuffler apart."""
    fields = {**chain(noise), "domain_size": 20, "n_min": 2000, "target_size": 2000}
    subject = audited(published(**fields).task, n_users=2000)
    results = AuditRun(subject=subject, seed=1).self_test()

    assert [] == [row.sentence for result in results for row in failed(result.honest)]
    assert [] == [result.scenario.name for result in results if not result.passed]


def test_permuting_alone_is_refuted_by_each_behaviour() -> None:
    """Against cores that run without dummies; the deployed ones are not refuted by any."""
    subject = _subject(_task())
    with_noise = replace(subject, ports=NOISE_AFTER_ALL)
    rows, quiet = (
        list(run_permuting(each, np.random.default_rng(1))) for each in (subject, with_noise)
    )

    assert {"refuted"} == {row.verdict for row in rows}
    assert {"not refuted"} == {row.verdict for row in quiet}
    assert 7 * [True] == [row.advantage == pytest.approx(1) for row in rows]
    assert 5 * ["analyzer+first-shuffler"] + 2 * ["analyzer+second-shuffler"] == [
        row.coalition for row in rows
    ]


def test_a_task_with_one_shuffler_has_these_scenarios_on_a_sample_alone() -> None:
    """Whose findings say so; otherwise, what does not fit is named, as with two shufflers."""
    one, two = audited(), _subject(_task())
    sampled = replace(one, sample=sample_chain(), sizes=two.sizes)
    [forged] = [each for each in _TWO if each.name == "first-shuffler-forges-tree"]
    [row] = run(forged, sampled, 1)
    fitting = [{each.name for each in SCENARIOS if each.fits(x)} for x in (one, sampled, two)]

    assert "sageo, two shufflers" == row.subject
    assert {each.name for each in _TWO} == fitting[1] - fitting[0]
    assert {"n-1", "services", "honest-shuffler"} < fitting[0] - fitting[2]
    report = AuditRun(subject=two, seed=1, scenarios=[SCENARIOS[3]], processes=1).audit()
    assert ("n-1",) == report.other_shufflers
