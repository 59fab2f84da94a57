import math

import pytest

from deploy.pages.guarantee_sentences import coalition_name, guarantee_sentences
from tests.support.result_pages import guarantee


def test_a_sentence_has_the_odds_and_what_is_added() -> None:
    """P[S] ≤ e^ε P'[S] + δ: e^0.1082 is 1.1143, rounded up; δ is no probability of failure."""
    [found] = guarantee_sentences([guarantee("analyzer", 0.108_169_5, 1e-6)])

    assert "at most 1.115 times as likely" in found.sentence
    assert found.sentence.endswith(", plus at most 0.000001.")
    assert "except" not in found.sentence


def test_an_infinite_epsilon_has_no_number() -> None:
    """ε = 0 with δ = 0 is the strongest guarantee."""
    _, none, all_ = guarantee_sentences(
        [
            guarantee("analyzer", 1, 0),
            guarantee("shuffler+analyzer", math.inf, 0),
            guarantee("network", 0.0, 0.0),
        ]
    )

    assert "no guarantee" == none.epsilon
    assert "nothing is promised" in none.sentence
    assert "" == none.odds == none.certainty
    assert "learn nothing of your value" in all_.sentence


def test_the_weakest_coalition_and_the_one_that_is_charged_are_marked() -> None:
    """Two guarantees against one coalition both hold: the better counts."""
    found = guarantee_sentences(
        [
            guarantee("analyzer", 0.1, 1e-6),
            guarantee("analyzer+users", 5.0, 1e-6),
            guarantee("shuffler+analyzer", 8.0, 0),
            guarantee("shuffler+analyzer", 4.0, 1e-6),
        ]
    )

    assert ["analyzer+users"] == [one.coalition for one in found if one.weakest]
    assert ["analyzer+users"] == [one.coalition for one in found if one.charged]


@pytest.mark.parametrize(
    ("coalition", "name"),
    [
        ("shuffler+analyzer", "The shuffler and the analyzer together"),
        ("analyzer+users", "The analyzer and dishonest users"),
        ("users", "Dishonest users alone"),
        ("shuffler+analyzer+users", "The shuffler, the analyzer and dishonest users together"),
        ("whoever asks", "Whoever asks"),
    ],
)
def test_every_coalition_has_a_name(coalition: str, name: str) -> None:
    """Also one without a guarantee."""
    assert name == coalition_name(coalition)
