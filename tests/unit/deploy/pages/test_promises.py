import math

import pytest

from deploy.pages.promises import promises, who
from tests.support.result_pages import guarantee


def test_a_promise_says_how_many_times_as_likely_and_what_is_added() -> None:
    """P[S] ≤ e^ε P'[S] + δ: e^0.1082 is 1.1143, rounded up, and δ is no probability of failing."""
    [promise] = promises([guarantee("analyzer", 0.108_169_5, 1e-6)])

    assert "at most 1.115 times as likely" in promise.sentence
    assert promise.sentence.endswith(", plus at most 0.000001.")
    assert "except" not in promise.sentence


def test_where_nothing_is_promised_no_number_is_shown() -> None:
    """Infinity is in words."""
    told = promises([guarantee("analyzer", 1, 0), guarantee("shuffler+analyzer", math.inf, 0)])

    assert "no guarantee" == told[1].epsilon
    assert "nothing is promised" in told[1].sentence
    assert "" == told[1].odds == told[1].certainty


def test_the_weakest_coalition_and_the_one_that_is_charged_are_marked() -> None:
    """Of two promises to one coalition both hold, so that the better counts."""
    told = promises(
        [
            guarantee("analyzer", 0.1, 1e-6),
            guarantee("analyzer+users", 5.0, 1e-6),
            guarantee("shuffler+analyzer", 8.0, 0),
            guarantee("shuffler+analyzer", 4.0, 1e-6),
        ]
    )

    assert ["analyzer+users"] == [promise.coalition for promise in told if promise.weakest]
    assert ["analyzer+users"] == [promise.coalition for promise in told if promise.charged]


def test_a_promise_of_nothing_is_told_apart_from_no_promise() -> None:
    """ε = 0 with δ = 0 is the strongest there is."""
    [_, promise] = promises([guarantee("analyzer", 1, 0), guarantee("network", 0.0, 0.0)])

    assert "learn nothing of your value" in promise.sentence


@pytest.mark.parametrize(
    ("coalition", "named"),
    [
        ("shuffler+analyzer", "The shuffler and the analyzer together"),
        ("analyzer+users", "The analyzer and dishonest users"),
        ("users", "Dishonest users alone"),
        (
            "shuffler+analyzer+users",
            "The shuffler, the analyzer and dishonest users together",
        ),
        ("whoever asks", "Whoever asks"),
    ],
)
def test_every_coalition_has_a_name(coalition: str, named: str) -> None:
    """Also one to which nothing is promised."""
    assert named == who(coalition)
