import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.cli import app

_RUNNER = CliRunner()


def _answer(tmp_path: Path, questions: object) -> list[dict[str, object]]:
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(questions), encoding="utf-8")
    outcome = _RUNNER.invoke(app, ["account", "--batch", str(file)])
    assert outcome.exit_code == 0
    answers: list[dict[str, object]] = json.loads(outcome.stdout)
    return answers


def test_a_file_of_questions_is_answered_in_order(tmp_path: Path) -> None:
    """ε for a δ, δ for an ε, an infinite ε as text, and what cannot be answered in its place."""
    answers = _answer(
        tmp_path,
        [
            {"kind": "grr", "n": 1, "k": 4, "eps_l": 2.0, "M": 0, "eps": 1.0},
            {"kind": "olh", "n": 10_000, "k": 56, "eps_l": 4, "M": 0, "delta": 1e-6},
            {"kind": "grr", "n": 1, "k": 16, "eps_l": "inf", "M": 0, "delta": 1e-6},
            {"kind": "grr", "n": 60, "k": 4, "eps_l": 3.0, "eps": 0.7, "M_binom": [100, 0.4]},
            {"kind": "olh", "n": 0, "k": 4, "eps_l": 3.0, "eps": 0.7},
        ],
    )

    assert answers[0]["delta_upper"] == pytest.approx(0.44958600916134905)
    assert answers[1]["epsilon_upper"] == pytest.approx(0.27848, rel=1e-3)
    assert {"epsilon_upper": "inf"} == answers[2]
    assert "M_binom" in str(answers[3]["error"])
    assert "users is 0" in str(answers[4]["error"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "rappor"}, "kind must be one of"),
        ({"n": -1}, "users is -1"),
        ({"n": 1.5}, "n must be a whole number"),
        ({"n": None}, "n must be a whole number"),
        ({"k": 1}, "alphabet is 1"),
        ({"eps_l": -1}, "local epsilon must be a number above 0"),
        ({"eps_l": "many"}, "local epsilon must be a number above 0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": "small"}, "delta must be a number"),
        ({"eps": 0.1}, "give delta to get epsilon"),
        ({"colluders": 100}, "100 colluders among 100 users"),
        ({"surprise": 1}, "unknown key: surprise"),
        ({"kind": []}, "kind must be one of"),
        ({"k": 10**400}, "the alphabet is"),
        ({"k": 0, "eps_l": 1e-20}, "the alphabet is 0"),
        ({"eps_l": 5e-324}, "local epsilon is 5e-324"),
        ({"eps_l": 10**400}, "local epsilon must be a number"),
        ({"delta": 10**400}, "delta must be a number"),
        ({"delta": None, "eps": 800, "eps_l": "inf"}, "epsilon is 800.0"),
        ({"known_dummies": 1}, "known_dummies"),
    ],
)
def test_a_question_that_breaks_a_rule_is_refused_by_name(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """The sentence names the number or the key; the other questions are answered all the same."""
    good: dict[str, object] = {"kind": "olh", "n": 100, "k": 8, "eps_l": 2, "delta": 1e-3}
    answers = _answer(tmp_path, [good | change, good, "no question"])

    assert message in str(answers[0]["error"])
    assert "epsilon_upper" in answers[1]
    assert "error" in answers[2]


def test_one_question_is_answered_with_its_assumptions() -> None:
    """On the terminal: the figure, whom it is against, and the local one."""
    outcome = _RUNNER.invoke(
        app,
        [
            "account",
            "--users",
            "20000",
            "--alphabet",
            "53",
            "--local-epsilon",
            "4",
            "--dummies",
            "20000",
            "--delta",
            "1e-6",
        ],
    )

    assert "epsilon_upper = 0.108" in outcome.stdout
    assert "replace-one" in outcome.stdout


def test_one_question_is_answered_as_json() -> None:
    """For programs."""
    outcome = _RUNNER.invoke(
        app,
        [
            "account",
            "--mechanism",
            "grr",
            "--users",
            "1",
            "--alphabet",
            "4",
            "--local-epsilon",
            "2",
            "--central-epsilon",
            "1",
            "--json",
        ],
    )

    assert json.loads(outcome.stdout)["delta_upper"] == pytest.approx(0.44958600916134905)
