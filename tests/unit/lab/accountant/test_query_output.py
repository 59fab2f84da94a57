import itertools
import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shuffledp.common.errors import AccountingError, UsageError
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.deploy.cli import app
from shuffledp.lab.accountant.query import Query
from tests.support.command_line import shown, shown_json
from tests.support.exhaustive_delta import true_delta
from tests.support.reference_bounds import delta_lower
from tests.support.tables import table


def test_a_file_of_queries_is_answered_in_order(tmp_path: Path) -> None:
    """Queries ask for ε or δ; an infinite ε is text, and errors stay in their place."""
    known = {"M": 60, "known_dummies": 20}
    questions = [
        {"kind": "grr", "n": 1, "k": 4, "eps_l": 2.0, "M": 0, "eps": 1.0},
        {"kind": "olh", "n": 10_000, "k": 56, "eps_l": 4, "M": 0, "delta": 1e-6},
        {"kind": "grr", "n": 1, "k": 16, "eps_l": "inf", "M": 0, "delta": 1e-6},
        {"kind": "grr", "n": 60, "k": 4, "eps_l": 3.0, "eps": 0.7, "M_binom": [100, 0.4]},
        {"kind": "olh", "n": 100, "k": 8, "eps_l": 4.0, "eps": 1.2, **known},
        {"kind": "olh", "n": 0, "k": 4, "eps_l": 3.0, "eps": 0.7},
        "no question",
        {"kind": "grr", "n": 1, "k": 4, "eps_l": 2, "eps": 1.0},
    ]
    (tmp_path / "questions.json").write_text(json.dumps(questions), encoding="utf-8")
    outcome = CliRunner().invoke(app, ["account", "--batch", f"{tmp_path}/questions.json"])
    answers = json.loads(outcome.stdout)

    assert answers[0]["delta_upper"] == pytest.approx(0.44958600916134905)
    assert answers[1]["epsilon_upper"] == pytest.approx(0.27848, rel=1e-3)
    assert {"epsilon_upper": "inf"} == answers[2]
    assert answers[3]["delta_upper"] == pytest.approx(0.003620562, rel=2e-3)
    assert answers[4]["delta_upper"] == pytest.approx(0.002573217, rel=2e-3)
    assert "users is 0" in str(answers[5]["error"])
    assert {"error": "a query must be a JSON object"} == answers[6]
    assert answers[0] == answers[7]
    assert 1 == outcome.exit_code


@table(
    ("change", "message"),
    [
        ({"kind": "magic"}, "unknown mechanism; the mechanisms are grr, "),
        ({"n": 1.5}, "n must be a valid integer"),
        ({"k": 1}, "alphabet is 1"),
        ({"eps_l": None}, "local_epsilon, or eps_l in a file"),
        ({"k": None}, "alphabet=SIZE, or k in a file"),
        ({"delta": None}, "in a file, give delta or eps"),
        ({"eps_l": -1}, "eps_l must be greater than 0"),
        ({"eps_l": "many"}, "eps_l must be a valid number"),
        ({"eps": 0.1}, "give one of delta=DELTA"),
        ({"surprise": 1}, "unknown key: surprise"),
        ({"k": 10**400}, "k must be within 64 bits"),
        ({"eps_l": 5e-324}, "local_epsilon is 5e-324"),
        ({"delta": None, "eps": 800, "eps_l": "inf"}, "epsilon is 800.0"),
        ({"known_dummies": 1}, "known_dummies is 1"),
        ({"M_binom": [1.5, 0.1]}, "M_binom: a distribution of random dummies must"),
        ({"M_binom": [10, 0.5], "M_poisson": 3}, "give only one distribution of random dummies"),
        ({"coll": 1.5}, "collision probability is 1.5"),
        ({"kind": "grr", "coll": 0.1}, "a collision probability may be stated only for hashing"),
        ({"kind": "duchi"}, "duchi has neither an alphabet"),
        ({"m": -1}, "dummies_per_user is -1.0"),
        ({"m": 1e305}, "m must be a number from -1e+300 to 1e+300"),
        ({"delta": math.nan}, "delta must be a number from -1e+300 to 1e+300"),
        ({"skippers": 101}, "0 colluders and 101 skippers are more than the 100 users"),
        ({"m": 0.5, "M_poisson": 3}, "it must be whole if a distribution"),
    ],
)
def test_a_query_that_breaks_a_rule_is_refused(change: dict[str, object], message: str) -> None:
    """The message names the number or the key."""
    good: dict[str, object] = {"kind": "olh", "n": 100, "k": 8, "eps_l": 2, "delta": 1e-3}

    with pytest.raises(AccountingError) as caught:
        Query.read(good | change).answer()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--local-epsilon -1", "--local-epsilon must be greater than 0"),
        ("--local-epsilon 1 --users 0", "--users is 0; it must be"),
        ("--local-epsilon 1 --shuffler-dummies -3", "--shuffler-dummies must be"),
        ("--local-epsilon 1 --known-dummies 5", "--known-dummies is 5"),
        ("--local-epsilon 1 --random-dummies poisson:-1", "--random-dummies: the mean is -1.0"),
        ("--local-epsilon 1 --delta nan", "--delta must be a number from"),
    ],
)
def test_a_refused_option_is_named_as_it_was_typed(options: str, message: str) -> None:
    """Files have keys instead; a refused option is wrong usage."""
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        shown(f"account --users 100 --alphabet 8 --delta 1e-3 {options}")


def test_one_query_is_answered_as_text_and_as_json() -> None:
    """The text has the assumptions; without local noise, a single user has no privacy."""
    asked = "account --users 20000 --alphabet 53 --local-epsilon 4 --dummies 20000 --delta 1e-6"
    alone = "account --mechanism grr --users 1 --alphabet 4 --local-epsilon"
    text, noisy = shown(asked), shown_json(f"{alone} 2 --central-epsilon 1")
    plain = shown_json(f"{alone} inf --delta 1e-6")

    assert "epsilon_upper = 0.108" in text
    assert "replace-one" in text
    assert noisy["delta_upper"] == pytest.approx(0.44958600916134905)
    assert "inf" == plain["epsilon_upper"]


def test_a_file_of_queries_excludes_other_options(tmp_path: Path) -> None:
    """An option given with its default counts too."""
    with pytest.raises(UsageError, match="allows only the options"):
        shown("account", "--batch", str(tmp_path / "x"), "--dummies", "0")


@pytest.mark.parametrize(
    ("per_user", "in_total"),
    [
        ({"m": 2}, {"M": 200}),
        ({"m": 2, "colluders": 10}, {"M": 180, "colluders": 10}),
        ({"m": 2, "skippers": 10}, {"M": 180}),
        ({"m": 1.25}, {"M": 100, "M_binom": [100, 0.25]}),
        ({"m": 1, "M_shuffler": 50, "colluders": 99}, {"M": 51, "colluders": 99}),
    ],
)
def test_dummies_of_users_are_those_of_honest_users(
    per_user: dict[str, object], in_total: dict[str, object]
) -> None:
    """Colluders and skippers add none; the shuffler's dummies stay."""
    base: dict[str, object] = {"kind": "olh", "n": 100, "k": 8, "eps_l": 2, "eps": 0.3}
    found, expected = (Query.read(base | each).answer() for each in (per_user, in_total))

    assert 0 < found.delta < 1
    assert expected.delta == found.delta


@pytest.mark.parametrize(
    "kind", ["symmetric-unary", "optimized-unary", "duchi", "piecewise", "laplace"]
)
def test_randomizers_beyond_randomized_response_have_answers(kind: str) -> None:
    """The ε is below the local ε, and the δ at this ε is about the given one."""
    question: dict[str, object] = {"kind": kind, "n": 3000, "eps_l": 1.0}
    found = Query.read(question | {"delta": 1e-6}).answer()
    back = Query.read(question | {"eps": found.epsilon}).answer()

    assert 0.01 < found.epsilon < 0.5
    assert 0.9e-6 < back.delta <= 1.02e-6


@pytest.mark.slow
def test_every_bound_is_shown_beside_the_tight_one() -> None:
    """An attack proves less; papers claim more, or nothing with a reason."""
    asked = "account --users 20000 --alphabet 53 --local-epsilon 4 --delta 1e-6 --compare"
    answer = shown_json(asked)

    assert 0.98 * answer["epsilon_upper"] < answer["epsilon_lower"] < answer["epsilon_upper"]
    assert len(answer["compare"]) >= 7
    for row in answer["compare"]:
        assert ("epsilon" in row) != ("refused" in row)
        assert row.get("epsilon", math.inf) > answer["epsilon_lower"]
    few = shown("account --users 500 --alphabet 5 --local-epsilon 2 --delta 1e-6 --compare")
    assert "this accountant" in few
    assert "by an attack" in few


@pytest.mark.parametrize(
    ("buckets", "family"),
    [(3, "over a field"), (6, "independent"), (9, "over a field"), (2, "independent")],
)
def test_a_lower_bound_for_hashing_names_the_hash_family(buckets: int, family: str) -> None:
    """A field has a prime power of elements; a line over two elements has no third item."""
    query = Query.read({"kind": "olh", "n": 3, "k": buckets, "eps_l": 2.0, "delta": 0.1})
    assert isinstance(query.subject, MatchCountReduction)
    assert family in query.attacked(query.subject)[1]


def test_an_attack_on_independent_hashing_proves_no_more_than_is_true() -> None:
    """Six buckets: three users with any of three items, whose supports are enumerated."""
    query = Query.read({"kind": "olh", "n": 3, "k": 6, "eps_l": 2.0, "delta": 0.1})
    assert isinstance(query.subject, MatchCountReduction)
    attacked, _ = query.attacked(query.subject)
    other = 1 / (math.exp(2.0) + 5)

    def law(held: int) -> dict[tuple[int, ...], float]:
        """Return the distribution of which of the three items a report supports."""
        supports = itertools.product((0, 1), repeat=3)
        uniform = {each: math.prod((5 / 6, 1 / 6)[own] for own in each) for each in supports}
        ratios = (6 * other, 6 * other * math.exp(2.0))
        return {each: chance * ratios[each[held]] for each, chance in uniform.items()}

    pmfs = [law(held) for held in range(3)]
    for epsilon in (0.3, 0.7, 1.0, 1.5):
        truth = true_delta(pmfs, users=3, dummies=0, dummy=pmfs[0], epsilon=epsilon)
        assert 0 < delta_lower(attacked, query.anonymity_set, epsilon) <= truth


def test_a_distribution_of_dummies_is_parsed() -> None:
    """Other texts are refused, and the message names the known distributions."""
    asked = "account --users 50 --alphabet 5 --local-epsilon 3 --central-epsilon .5"
    for distribution in ("poisson:30", "binomial:100,0.5", "negative-binomial:5,30"):
        assert 0 < shown_json(f"{asked} --random-dummies {distribution}")["delta_upper"] < 0.1

    for distribution in ("poisson", "uniform:3", "binomial:1.5,0.5"):
        with pytest.raises(UsageError, match="random dummies must be binomial:TRIALS"):
            shown(f"{asked} --random-dummies {distribution}")


@pytest.mark.parametrize(("delta", "warned"), [("0.02", True), ("0.001", False)])
def test_an_answer_warns_of_a_large_delta(delta: str, *, warned: bool) -> None:
    """As plans and results do, in words and as JSON."""
    asked = "account --mechanism grr --users 100 --alphabet 4 --local-epsilon 2 --delta"
    words, fields = " ".join(shown(asked, delta).split()), shown_json(asked, delta)

    assert warned == ("delta allows publishing one of these people in the clear" in words)
    assert warned == ("warnings" in fields)


@pytest.mark.parametrize("mechanism", ["symmetric-unary", "optimized-unary", "piecewise", "duchi"])
def test_a_stated_local_epsilon_is_printed_as_stated(mechanism: str) -> None:
    """Its bound in floats is a little larger; rounded up, that would be another number."""
    query = Query.read({"kind": mechanism, "n": 1, "eps_l": 4.0, "delta": 1e-6})

    assert 4.0 == query.local_epsilon < query.subject.local_epsilon or mechanism == "duchi"
    assert query.answer().epsilon <= 4.0
