"""`shuffledp plan`: options, table, JSON and draft, for every kind of data."""

import dataclasses
import datetime
import json
import math
import re
import tomllib
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest

from shuffledp.common.accounting.guarantees import claimed_guarantee
from shuffledp.common.errors import PlanError, ShuffleDpError, UsageError
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import NumberDraft, PairDraft
from shuffledp.common.task.task import Task
from shuffledp.deploy.tasks import drafts as draft_file
from shuffledp.deploy.tasks.task_view import preview
from shuffledp.deploy.terminal.json_output import dumps
from shuffledp.lab.planning.central_mechanisms import gaussian_mse
from shuffledp.lab.planning.plan_view import draft, least_sentence, show, to_json
from shuffledp.lab.planning.plan_warnings import with_warnings
from shuffledp.lab.planning.planner import Plan, plan
from shuffledp.lab.planning.question import default_local_cap
from shuffledp.user_agent.policy import Claim, composed_total
from tests.support.command_line import shown, shown_json
from tests.support.kind_tasks import NOISY_KINDS, noisy_protocols
from tests.support.printing import printed
from tests.support.requirements import designed, small_requirements, value_requirements

_ITEMS: Final = ["--users", "50000", "--domain-size", "5000", "--central-epsilon", "0.5"]
_MEAN: Final = ["--task-kind", "mean", "--users", "5000", "--central-epsilon", "0.5"]
_TABLE: Final = [*_MEAN, "--task-kind", "table", "--attribute-sizes", "4,3,2"]
_QUICK: Final = ("--local-cap", "4", "--messages-cap", "1")
_TWO: Final = {
    "shufflers": 2,
    "coalition_epsilon": 2.0,
    "local_cap": math.inf,
    "domain_size": 5,
    "messages_cap": 1.0,
}
"""Requirements of a plan with two shufflers, whose plan with one is quick."""
_NOW: Final = 1_900_000_000.5
_FIELDS: Final[dict[Kind, dict[str, Any]]] = {
    "string": {},
    "open": {},
    "mean": {"numbers": NumberDraft(low=0.0, high=24.0)},
    "vector": {"numbers": NumberDraft(low=1.0, high=5.0)},
    "key-value": {"pairs": PairDraft(low=0.0, high=5.0)},
}


@cache
def _plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "n_users": 50_000,
        "n_min": 40_000,
        "domain_size": 5000,
        "messages_cap": 1.4,
        "local_cap": 6.0,
        "honest_fraction": 0.9,
    }
    return with_warnings(plan(small_requirements(**fields | changes)))


@cache
def _value_plan(kind: Kind) -> Plan:
    """Plan with a local cap that meets the target at once, which is quick."""
    return with_warnings(plan(value_requirements(kind, local_cap=0.75, draft_fields=_FIELDS[kind])))


@pytest.mark.slow
def test_a_bytes_cap_limits_the_average_submission() -> None:
    """By the bytes of each protocol's own reports; not even one report fits into 100."""
    asked = ["--users", "1e4", "--domain-size", "20", "--central-epsilon", "1"]
    found = shown_json("plan", *asked, "--bytes-cap", "125", "--messages-cap", "1.1")
    capped = small_requirements(bytes_cap=184.0, messages_cap=math.inf)

    assert 116 <= found["bytes_per_user"] <= 125
    most = [capped.most_messages(hashed=hashed) for hashed in (False, True)]
    assert most == pytest.approx([120 / 52, 120 / 60])
    with pytest.raises(UsageError, match="--bytes-cap is 100; it must lie between 116 and inf"):
        shown("plan", *asked, "--bytes-cap", "100")


@pytest.mark.slow
def test_an_influence_cap_limits_what_one_liar_moves() -> None:
    """Without it, `signed` would be planned with an influence of 14."""
    asked = ["--users", "20000", "--domain-size", "20", "--central-epsilon", "1"]
    caps = ("--local-cap", "none", "--messages-cap", "2", "--influence-cap", "10")
    found = shown_json("plan", *asked, *caps)

    assert found["protocol"] == "signed"
    assert max(found["influence"].values()) <= 10


def _text(*arguments: str) -> str:
    return " ".join(shown("plan", *arguments).split())


def test_a_program_reads_the_plan_as_json() -> None:
    """Every figure has its key, and the guarantee is the target."""
    found = shown_json(
        "plan", *_ITEMS, "--local-cap", "6", "--messages-cap", "1", "--n-min", "40000"
    )

    assert found["protocol"] in {"murs", "od-hp"}
    assert found["mechanism"]["name"] == "local-hashing"
    assert found["mechanism"]["local_epsilon"] <= 6
    assert found["messages_per_user"] == 1 + found["dummies_per_user"]
    assert found["bytes_per_user"] >= 124
    assert found["central_epsilon"] == found["guarantees"][0]["epsilon"] <= 0.5
    assert found["predicted_mse_top"][0] > found["predicted_mse"] > 0
    assert found["ratio_to_central_gaussian"] > 1
    assert (40_000, 1e-6) == (found["n_min"], found["delta"])
    assert found["runners_up"][0]["predicted_mse"] >= found["predicted_mse"]
    assert set(found["binding"]) <= {"central epsilon", "local cap", "messages cap"}
    assert found["least_mse"]["with_local_cap"] == found["predicted_mse"]
    assert found["least_mse"]["with_local_cap"] > found["least_mse"]["without_local_cap"]
    assert found["least_mse"]["two_shufflers"] == found["two_shufflers"]["predicted_mse"]
    assert ("sageo", 6) == (found["two_shufflers"]["protocol"], found["least_mse"]["local_cap"])


def test_two_shufflers_are_planned_on_request() -> None:
    """Table, noises, both claims and JSON."""
    found = _plan(**_TWO)
    text = " ".join(printed(partial(show, found, guarantees=False), width=200).split())
    fields = json.loads(dumps(to_json(found)))
    noises = [fields["shuffler"], fields["relay"]]

    assert (fields["protocol"], math.inf) == ("sageo", found.best.local_epsilon)
    assert 2 == len(re.findall("a two-sided geometric number", text))
    assert [47, 14] == [noise["peak"] for noise in noises]
    assert "and coalition epsilon 2 against the analyzer with either shuffler" in text
    assert "coalition epsilon" in fields["binding"]
    assert fields["central_epsilon"] <= 0.5
    assert fields["coalition_epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert 0.2 < fields["ratio_to_central_gaussian"] < 0.28


def test_a_plan_for_one_shuffler_lists_two_as_a_choice() -> None:
    """It is never the best one; a sentence has the errors with and without a local cap."""
    found = _plan(messages_cap=1.0)
    text = " ".join(printed(partial(show, found, guarantees=False), width=200).split())
    least = {"local_cap": 6.0, "with_local_cap": 2e-6, "without_local_cap": 1e-7}

    assert found.best.draft.relay is None
    assert "sageo x2" in text
    assert "x2: two shufflers, which need a second operator and --shufflers 2" in text
    assert least_sentence({**least, "two_shufflers": math.inf}) == (
        "Least mean squared error with a local cap of 6: 2e-06; without one: 1e-07; with two "
        "shufflers, which need a second operator: no design."
    )


def test_no_local_noise_is_text_in_json_and_inf_in_toml() -> None:
    """JSON has no infinity; TOML has."""
    found = _plan(
        domain_size=5,
        local_cap=math.inf,
        influence_cap=2.6,
        messages_cap=2.0,
        central_epsilon=1.0,
        n_users=100_000,
    )
    fields = json.loads(dumps(to_json(found)))
    local = [g for g in fields["guarantees"] if g["coalition"] == "shuffler+analyzer"]

    assert ("puredump", "inf") == (fields["protocol"], fields["mechanism"]["local_epsilon"])
    assert [("inf", 0.0)] == [(g["epsilon"], g["delta"]) for g in local if g["delta"] == 0]
    assert tomllib.loads(draft(found, _NOW))["local_epsilon"] == math.inf


def _task(found: Plan, folder: Path) -> Task:
    """Return the analyzer's task for a plan's draft."""
    (folder / "draft.toml").write_text(draft(found, _NOW), encoding="utf-8")
    return preview(draft_file.read(folder / "draft.toml"), now=0.0)


@pytest.mark.slow
def test_the_draft_of_several_rounds_names_the_population_and_its_guarantee() -> None:
    """Comments beside the prediction name them."""
    found = _plan(rounds=2, messages_cap=1.0, domain_size=400)
    named = dataclasses.replace(found.target, draft_fields={"population": "staff"})
    own = dataclasses.replace(found.best.draft, population="staff")
    best = dataclasses.replace(found.best, draft=own, target=named)
    first, second, *others = draft(dataclasses.replace(found, best=best), _NOW).splitlines()

    with pytest.raises(PlanError, match="2 rounds needs the name of its population"):
        draft(found, _NOW)
    assert 'population = "staff"' in others
    assert f"{found.best.mse:.4g}" in first
    assert "at least 40000 users, 36000 of them honest, over 2 tasks" in second
    counted = composed_total([Claim.of(best.task)] * 2, 1e-4)  # as `series forecast` does
    text = " ".join(printed(partial(show, found, guarantees=False), width=200).split())
    assert counted > found.central_guarantee.epsilon
    assert f"and {rounded_up(counted)}, as devices add up claims." in text


@pytest.mark.parametrize(
    ("changes", "protocol"),
    [
        ({"messages_cap": 1.0}, "murs"),
        pytest.param(
            {"n_users": 602_325, "n_min": 602_325, "domain_size": 41_270, "central_epsilon": 0.2}
            | {"local_cap": 8.0, "messages_cap": 3.0, "honest_fraction": 1.0},
            "od-hp",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"domain_size": 5, "local_cap": math.inf, "messages_cap": 2.0, "influence_cap": 20},
            "signed",
            marks=pytest.mark.slow,
        ),
        (_TWO, "sageo"),
        pytest.param(
            {"domain_size": 30, "local_cap": math.inf, "trust": "shuffler-dummies"},
            "sageo",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_task_of_a_draft_keeps_the_plan(
    tmp_path: Path, changes: dict[str, Any], protocol: str
) -> None:
    """Claim and bytes are the planned ones; the task has a week's time and the budget."""
    found = _plan(**changes)
    task = _task(found, tmp_path)
    target, week = found.target, datetime.datetime(2030, 3, 24, 17, 46, 40, tzinfo=datetime.UTC)

    assert (protocol, week.timestamp()) == (task.protocol, task.deadline)
    assert (target.n_min, target.n_users) == (task.n_min, task.target_size)
    assert (target.delta, target.honest_fraction) == (task.delta, task.assumed_honest_fraction)
    assert (target.central_epsilon, target.delta) == (task.budget_epsilon, task.budget_delta)
    assert task.central_epsilon <= target.central_epsilon
    assert task.central_epsilon == pytest.approx(found.central_guarantee.epsilon, rel=1e-3)
    assert (round(task.expected_envelope_bytes), task.local_epsilon) == (
        found.best.bytes_per_user,
        found.best.local_epsilon,
    )


@pytest.mark.parametrize("kind", NOISY_KINDS)
def test_plans_of_other_kinds_are_printed_written_as_json_and_drafted(
    tmp_path: Path, kind: Kind
) -> None:
    """Every protocol of the kind has a row; the draft's task makes the planned claims."""
    found = _value_plan(kind)
    fields, text = (
        json.loads(dumps(to_json(found))),
        printed(partial(show, found, guarantees=True), width=200),
    )
    names = [fields["protocol"], *(other["protocol"] for other in fields["runners_up"])]
    planned, task = found.best.task, _task(found, tmp_path)

    assert sorted(noisy_protocols(kind)) == sorted(names)
    assert (kind, 5000, 4000) == (fields["kind"], fields["users"], fields["n_min"])
    assert {"mechanism", "bytes_per_user", "predicted_mse", "biased", "floor"} <= set(fields)
    expected = fields["predicted_mse"] / gaussian_mse(found.target)
    assert expected == pytest.approx(fields["ratio_to_central_gaussian"])
    assert "analyzer" == fields["guarantees"][0]["coalition"]
    assert all(name in text for name in names)
    assert "Guarantees for each of at least 4,000 users" in text
    assert ("the bias of the projection" in text) == (kind == "vector")
    marked = [line for line in text.splitlines() if "+ bias" in line]
    biased = [name for name in names if name in "".join(marked)]
    assert biased == (["multi-rphm"] if kind == "vector" else [])
    assert ("is a lower bound: decoding" in text) == (kind == "string")
    assert (planned.central_epsilon, planned.mechanism) == (task.central_epsilon, task.mechanism)
    assert (0.5, 1e-6) == (task.budget_epsilon, task.budget_delta)


@pytest.mark.parametrize(
    ("changes", "protocol"),
    [
        ({}, "digits"),
        ({"trust": "shuffler-dummies"}, "geo-digits"),
        ({"shufflers": 2, "coalition_epsilon": 0.5}, "geo-digits"),
        ({"kind": "vector", "messages_cap": 9.0}, "vector-digits"),
    ],
)
def test_the_task_of_a_draft_of_digits_keeps_the_plan(
    tmp_path: Path, changes: dict[str, Any], protocol: str
) -> None:
    """Radices, dummies and noise are read as written; so are the claims, which are the plan's."""
    best = designed(protocol, value_requirements(**changes))
    guarantee = claimed_guarantee(best.parameters, best.target.n_min)
    found = with_warnings(Plan(best=best, runners_up=(), central_guarantee=guarantee))
    task = _task(found, tmp_path)
    text = " ".join(printed(partial(show, found, guarantees=False), width=200).split())
    fields = json.loads(dumps(to_json(found)))
    radices = fields["mechanism"]["radices"]

    assert (protocol, best.task.views) == (task.protocol, task.views)
    assert radices * task.domain_size == list(task.view_sizes)
    assert [each.noises for each in best.task.shufflers] == [each.noises for each in task.shufflers]
    for claim in ("central_epsilon", "coalition_epsilon", "mechanism"):
        assert getattr(best.task, claim) == getattr(task, claim)
    assert fields["influence"]["up"] == pytest.approx(fields["influence"]["down"])
    assert fields["largest_submission"] == task.lengths[-1]
    assert f"{math.prod(radices)} points, in digits of" in text
    assert re.search(
        r"one dishonest submission can move .* as much as \S+ honest users can\.", text
    )
    alone = "kind" not in changes and "shufflers" not in changes
    assert ("quantiles beside the mean need ordered data" in text) == alone


@pytest.mark.slow
def test_the_least_error_without_a_cap_is_never_above_the_one_with_it() -> None:
    """Here the design of the cap is the better one, and two shufflers have none."""
    asked = ("--task-kind", "key-value", "--users", "5000", "--domain-size", "4")
    least = shown_json("plan", *asked, "--central-epsilon", "0.5")["least_mse"]

    assert least["with_local_cap"] == least["without_local_cap"] > 0
    assert "inf" == least["two_shufflers"]


@pytest.mark.slow
def test_the_command_plans_for_default_devices_by_default(tmp_path: Path) -> None:
    """Such devices accept a local ε of 4, and 20 over all rounds; the draft is read again."""
    file = tmp_path / "draft.toml"
    text = _text(*_ITEMS, "--messages-cap", "1", "--output", str(file))
    more = _text(*_ITEMS, "--messages-cap", "1", "--local-cap", "8")
    quiet = _text(*_ITEMS, *_QUICK, "--n-min", "40000", "--head", "0.1")
    few = _text("--users", "50", "--domain-size", "9", "--central-epsilon", "0.001", *_QUICK)
    target = draft_file.read(file)

    assert "murs" == target.protocol
    assert target.local_epsilon == pytest.approx(4.0)
    assert (4.0, 2.0) == (default_local_cap(1), default_local_cap(10))
    assert "at most 4, the default limit of devices; --local-cap changes it" in text
    assert "Written to" in text
    assert "Their limits are a local epsilon of 4 per answer" not in text
    assert "default limit of devices" not in more
    assert "Their limits are a local epsilon of 4 per answer" in more
    assert "fewer than 50,000 users" in text
    assert "exceeds 0.05, the largest expected share; raise" in few
    assert "Note" not in quiet


_REFUSED: Final = """
ITEMS --local-cap much | --local-cap must be a number, or none
ITEMS --head 0.1;0.2 | head must be shares such as
ITEMS --output /no/such/draft.toml | folder does not exist
ITEMS --coalition-epsilon 2 | two shufflers; use --shufflers 2
ITEMS --shufflers 3 | shufflers is 3; it must lie between 1 and 2
ITEMS --shufflers 2 --local-cap 4 | --local-cap is 4; with two shufflers reports have no
ITEMS --low 0 | --low is for data of these kinds: ordered, mean
ITEMS --task-kind ordered --low 0 --high 9 --head 0.2 | kinds: categorical; this is ordered data
MEAN --task-kind string --shufflers 2 | --shufflers is for data of these kinds:
MEAN --task-kind categorical | --domain-size is missing: the number of possible values
MEAN --rounds 2 | this is mean data: plan one round, with --central-epsilon and delta divided
MEAN --low 5 | --high is missing: low and high are the ends of the range
MEAN --task-kind vector | the length of a vector
MEAN --task-kind key-value | the number of keys
MEAN --task-kind string --high 1 | --high is for data of these
MEAN --breakdown a=b,c | --breakdown is for data of these kinds: categorical, ordered;
TABLE --margin-share .2 | the share of --margins, which is missing
TABLE --attribute-sizes= | --attribute-sizes is missing: the number
TABLE --attribute-sizes 4,x | must be whole numbers: the number of
TABLE --attribute-sizes 4,1 | attribute 2's number of values is 1
TABLE --pairs 1-2 | --pairs must be pairs of attributes by number
TABLE --pairs 1:1 | a table is of attribute 1, attribute 1; it must
TABLE --pairs 1:9 | of attribute 9; the attributes are
"""


@pytest.mark.parametrize("line", _REFUSED.strip().splitlines())
def test_an_invalid_option_is_refused(line: str) -> None:
    """One sentence before planning names the number and the rule."""
    words, _, message = line.partition(" | ")
    base, *options = words.split()
    with pytest.raises(ShuffleDpError, match=re.escape(message)):
        shown("plan", *{"ITEMS": _ITEMS, "MEAN": _MEAN, "TABLE": _TABLE}[base], *options)


def test_the_best_design_comes_first_and_the_guarantees_on_request() -> None:
    """Without --guarantees, one sentence has both figures with δ and their coalitions."""
    found = _plan(messages_cap=1.0)
    short, long = (
        printed(partial(show, found, guarantees=asked), width=200) for asked in (False, True)
    )

    best, _, _ = short.partition("Best design of each protocol under these requirements")
    assert best.startswith(f"{found.best.protocol}: ")
    assert "Values of --head ± standard error: 0.05 ±" in best
    assert "; the deadline is in 7 days.\n" in draft(found, _NOW)
    assert "at delta 1e-06 against analyzer" in best
    assert "against shuffler+analyzer. --guarantees lists" in best
    assert "Guarantees for each of at least" in long
    assert "Guarantees for each of at least" not in short


@pytest.mark.parametrize(
    ("users", "arguments", "delta", "warned"),
    [
        ("3", (), 1e-6, False),
        pytest.param("10000000", (), 1e-8, False, marks=pytest.mark.slow),
        ("3", ("--delta", "0.5"), 0.5, True),
        pytest.param("1000", ("--delta", "0.001"), 0.001, True, marks=pytest.mark.slow),
        pytest.param("1000", ("--delta", "0.00099"), 0.00099, False, marks=pytest.mark.slow),
    ],
)
def test_a_delta_that_allows_publishing_somebody_is_warned_of(
    users: str, arguments: tuple[str, ...], delta: float, *, warned: bool
) -> None:
    """The default is the lesser of 1e-6 and a tenth of 1 / users, and the plan states it."""
    # Every local epsilon up to the maximum meets the target, which makes the search quick.
    asked = ("--users", users, "--central-epsilon", "30", "--local-cap", "0.5", *arguments)
    text = _text("--task-kind", "mean", *asked)
    found = shown_json("plan", "--task-kind", "mean", *asked)

    assert delta == found["delta"]
    assert warned == any("in the clear" in each for each in found["warnings"])
    assert warned == ("allows publishing one of these people in the clear" in text)
    assert ("the lesser of 1e-6 and 0.1 / --users" in text) == (not arguments)


def test_the_command_prints_json_alone(tmp_path: Path) -> None:
    """Standard output has JSON only; the draft is written too, with range and population."""
    file = tmp_path / "draft.toml"
    options = ("--low", "0", "--high", "24", "--local-cap", "0.75", "--population", "staff")
    quick = (*_MEAN[:-1], "30")  # every local epsilon meets the target
    fields = shown_json("plan", *quick, *options, "--output", str(file))
    read = draft_file.read(file)

    assert (fields["protocol"], "staff") == (read.protocol, read.population)
    assert NumberDraft(low=0.0, high=24.0) == read.numbers
