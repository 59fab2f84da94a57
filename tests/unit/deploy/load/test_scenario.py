"""Scenarios of load runs: their keys, what is refused, and that all is explained."""

import re
import tomllib
from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.deploy.load.behaviour import Behaviour, LoadPlan
from shuffledp.deploy.load.scenario import SHIPPED, LoadScenario, Ramp, read_scenario
from tests.support.command_line import shown

_DIGEST = "5b" * 32
_SERVICES = ["--shuffler", "127.0.0.1:1", _DIGEST]
_MINE = "[target]\ni_run_these_services = true\n"


def _written(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return str(folder / "mine.toml")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("[checks.metrics]\nx = 'http://h:1/m'", ["5b" * 32], "drop TASK, checks.metrics:"),
        ("", ["--replay", "u"], "drop --replay: services here"),
        ("target = {sink = true}\nchecks = {close = true}", [], "drop checks.close: a sink"),
        ("[target]\ndraft = 'd'", _SERVICES, "drop target.draft: running"),
        ("[checks]\nanalyzer_token_file = 't'", _SERVICES, "there is no checks.analyzer"),
        ("", [*_SERVICES, "--prepare", "u", "--replay", "u"], "drop --replay: --prepare"),
        ("", [*_SERVICES, "--replay", "u", "--users", "5"], "drop --users: the prepared file"),
        ("ramp = {first = 1, last = 2, steps = 2}", ["--rate", "5"], "drop --rate:"),
        ("ramp = {first = 2, last = 1, steps = 0}", [], "ramp.steps must be greater"),
        ("ramp = {first = 2, last = 1, steps = 2}", [], "a ramp must rise"),
        ("ramp = {first = nan, last = 1, steps = 2}", [], "ramp.first must be"),
        ("[ramp]\nfirst = 1", [], "missing key: ramp.last, ramp.steps"),
        ("sending = {mode = 'bulk', fetch_task = true}", [], "drop sending.fetch_task:"),
        ("[sending]\nburst = 9", [], "sending.burst needs sending.rate or ramp.first"),
        ("[sending]\nconcurrency = 9", ["--rate", "5"], "drop sending.concurrency:"),
        ("", ["--rate", "0"], "mine.toml: sending.rate must be greater"),
        ("", ["--shuffler", "127.0.0.1:1"], "the task's digest is missing"),
        ("[checks]\nanalyzer = 'a:1'", _SERVICES, "needs checks.analyzer_token_file"),
        (_MINE + "[checks]\nclose = true", _SERVICES, "close needs target.shuffler_token_file"),
        ("", _SERVICES, "so only the services' operator may send them"),
        ("[misbehaving]\nhonest = 0.5", [], "unknown key: misbehaving.honest"),
        ("[misbehaving]\nmalformed = -0.1", [], "misbehaving.malformed must be greater"),
        ("misbehaving = {malformed = 0.5, conflict = 0.5}", [], "their sum must be below 1"),
        ("people = 5", [], "people must be a table"),
        ("[checks.metrics]\na = 'file:///etc/passwd'", _SERVICES, "must match pattern '^http://"),
        ("[poeple]\nusers = 5", [], "unknown key: poeple; did you mean people"),
    ],
)
def test_a_key_or_option_that_cannot_hold_is_refused_in_a_sentence(
    text: str, options: list[str], message: str, tmp_path: Path
) -> None:
    """Unknown, ill-typed, out of range, without effect or its partner: before anything starts."""
    with pytest.raises(UsageError, match=f"^[^\n]*{re.escape(message)}[^\n]*$"):
        shown("load", _written(tmp_path, text), *options)


@pytest.mark.parametrize("options", [[], ["--shuffler-token-file", "t"], ["--prepare", "u"]])
def test_consent_is_a_key_or_a_token_and_preparing_needs_none(
    options: list[str], tmp_path: Path
) -> None:
    """The next failure is a file that does not exist."""
    text = "target.authority = 'nowhere/a.pem'\ntarget.i_run_these_services = "
    file = _written(tmp_path, text + str(not options).lower())
    with pytest.raises(SettingsError, match="cannot be read"):
        shown("load", file, *_SERVICES, *options)


def test_a_plan_has_the_keys_of_its_scenario(tmp_path: Path) -> None:
    """An option overrides a key; the users are those named, or of the ramp, of a file, or 1000."""
    file = _written(tmp_path, "people = {users = 5, seed = 3}\nmisbehaving.dropping = 0.5")
    plan = LoadPlan.of(read_scenario(file, {"users": 7, "rate": 2.0}))
    ramp = LoadScenario(ramp=Ramp(first=10, last=20, steps=2, step_seconds=1.0))

    assert (7, 3, 2.0, 0.5) == (plan.n_users, plan.seed, plan.rate, sum(plan.shares.values()))
    assert 0.5 == plan.shares[Behaviour.DROPPING]
    assert 31 == LoadPlan.of(ramp, 9).n_users
    assert [9, 1000] == [LoadPlan.of(LoadScenario(), people).n_users for people in (9, None)]
    with pytest.raises(UsageError, match=f"one of {', '.join(SHIPPED)}$"):
        read_scenario("nowhere", {})


def test_every_key_is_explained_with_its_default() -> None:
    """Without the signs, the file has all keys of a scenario, and the value of each, or …."""
    text = re.sub(r"(?m)^# (?=\[\w+\]$|\w+ = )", "", shown("load --explain"))
    tables = tomllib.loads(
        re.sub("(?m)^(first|last|steps) = …", r"\1 = 1", text).replace("…", "''")
    )
    scenario = vars(LoadScenario(ramp=Ramp(first=1, last=1, steps=1)))

    assert [*scenario] == [*tables]
    for name, keys in tables.items():
        table = vars(scenario[name]).items()
        assert keys == {key: "" if each in (None, {}) else each for key, each in table}
