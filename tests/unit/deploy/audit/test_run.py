"""An audit as a whole: seeds, processes, failures, rehearsals."""

import dataclasses
import json

import numpy as np
import pytest

from common.errors import SettingsError
from deploy.audit.audited import Audited
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.failure import NotPlayedError
from deploy.audit.faults.catalogue import ALL_FAULTS, FAULTS, fault_named
from deploy.audit.finding import Outcome
from deploy.audit.playing import Job, play, play_all
from deploy.audit.report_json import as_json
from deploy.audit.run import Rehearsed, audit, rehearse, scenarios_named
from deploy.audit.scenario import Scenario
from deploy.terminal.json_output import dumps
from shuffler.permutation import permute
from tests.support.audits import audited
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_SOME = ("linking", "puredump", "draws")


def _figures(seed: int, *names: str, processes: int = 1) -> str:
    report = audit(
        audited(games=20_000),
        seed=seed,
        scenarios=scenarios_named(names),
        processes=processes,
    )
    assert report.passed
    return dumps(as_json(report)["findings"])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures() -> None:
    """Whichever scenarios are played with it; another seed gives others."""
    first = _figures(3, *_SOME)

    assert first == _figures(3, *_SOME)
    assert _figures(3, "linking") == dumps([json.loads(first)[0]])
    assert first != _figures(4, *_SOME)


@pytest.mark.slow
def test_other_processes_give_the_same_figures() -> None:
    """Spawned, two at once."""
    assert _figures(3, *_SOME) == _figures(3, *_SOME, processes=2)


def _fails(_: Audited, __: np.random.Generator) -> Outcome:
    raise RuntimeError("the value 1234567 is not there")


def test_code_that_fails_is_a_finding_that_repeats_nothing() -> None:
    """A scenario that cannot be played has not passed."""
    scenario = Scenario(name="fails", title="It fails", seconds=1, play=_fails)
    [row] = play(Job(scenario=scenario, audited=audited(), seed=1)).findings

    assert not row.passed
    assert "RuntimeError in test_run.py" in row.sentence
    assert "1234567" not in dumps(dataclasses.asdict(row))


def _gives_up(_: Audited, __: np.random.Generator) -> Outcome:
    raise NotPlayedError("the services had not come to an end after 7 seconds")


def test_what_the_audit_says_of_a_failure_is_shown() -> None:
    """Its own words hold no value, so that a reader may have them."""
    scenario = Scenario(name="gives up", title="It gives up", seconds=1, play=_gives_up)
    [row] = play(Job(scenario=scenario, audited=audited(), seed=1)).findings

    assert not row.passed
    assert "had not come to an end after 7 seconds" in row.sentence


def test_progress_is_told() -> None:
    """From nothing done to all."""
    told: list[tuple[str, int, int]] = []
    jobs = [Job(scenario=s, audited=audited(), seed=1) for s in scenarios_named(["linking"])]
    play_all(jobs, 1, lambda *step: told.append(step))

    assert told == [("Messages are linked by their seeds", 0, 1), ("", 1, 1)]


def test_names_are_unique_and_unknown_ones_are_refused() -> None:
    """Of scenarios, and of faults."""
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    assert len(FAULTS) == len(ALL_FAULTS)
    assert all(fault.check for fault in ALL_FAULTS)  # no words would be found in any sentence
    assert {fault.scenario for fault in FAULTS.values()} <= {s.name for s in SCENARIOS}
    with pytest.raises(SettingsError, match="there is no scenario 'shuffle'"):
        scenarios_named(["shuffle"])
    with pytest.raises(SettingsError, match="there is no fault 'none'"):
        fault_named("none")


@pytest.mark.parametrize("name", ["labels-cut", "rounded-down"])
def test_a_planted_fault_is_found_by_its_check_and_is_gone_afterwards(name: str) -> None:
    """Two of them; the others in the long suite."""
    before = permute
    [rehearsed] = rehearse(audited(), seed=1, faults=[FAULTS[name]], processes=1)

    assert rehearsed.caught, rehearsed.said
    assert permute is before
    [scenario] = scenarios_named([FAULTS[name].scenario])
    rows = play(Job(scenario=scenario, audited=audited(), seed=1)).findings
    assert all(row.passed for row in rows)


def test_a_check_that_fails_without_its_fault_shows_nothing() -> None:
    """Whatever it says with it."""
    fault = FAULTS["labels-cut"]
    said = (f"Not so: {fault.check}.",)

    assert Rehearsed(fault=fault, said=said, said_before=()).caught
    assert not Rehearsed(fault=fault, said=said, said_before=said).caught
    assert not Rehearsed(fault=fault, said=(), said_before=()).caught


def test_every_fault_can_be_planted() -> None:
    """What it changes is still there, under its name; whether it is found takes minutes."""
    for fault in FAULTS.values():
        with fault.plant():
            pass


@pytest.mark.slow
def test_every_planted_fault_is_found() -> None:
    """Each by the check that is named for it."""
    missed = [each.fault.name for each in rehearse(audited(), seed=1) if not each.caught]

    assert not missed


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ITEM_PROTOCOLS)
def test_every_protocol_passes_its_audit(protocol: str) -> None:
    """At little effort, all scenarios."""
    report = audit(audited(protocol_task(protocol), n_users=2000), seed=1)

    assert report.passed, [row.sentence for row in report.failed]
