import math

from syrupy.assertion import SnapshotAssertion

from shuffledp.deploy.pages.guarantee_sentences import coalition_name, guarantee_sentences
from tests.support.results import guarantee


def test_guarantees_are_sentences_with_figures(snapshot: SnapshotAssertion) -> None:
    """Figures are rounded up; of two guarantees against one coalition the better counts."""
    found = guarantee_sentences(
        [
            guarantee("analyzer", 0.108_169_5, 1e-6),  # e^ε is 1.1143
            guarantee("analyzer+users", 5.0, 1e-6),
            guarantee("shuffler+analyzer", 8.0, 0),
            guarantee("shuffler+analyzer", 4.0, 1e-6),
            guarantee("network", 0.0, 0.0),
        ]
    )
    [*_, infinite] = guarantee_sentences(
        [guarantee("analyzer", 1, 0), guarantee("shuffler+analyzer", math.inf, 0)]
    )

    assert ["analyzer+users"] == [one.guarantee.coalition for one in found if one.weakest]
    assert ["analyzer+users"] == [one.guarantee.coalition for one in found if one.charged]
    fields = [one._asdict() for one in (*found, infinite)]
    assert snapshot == [
        {**each, "guarantee": "", "coalition": each["guarantee"].coalition} for each in fields
    ]
    assert "The shuffler and the users" == coalition_name("shuffler+users")
    assert "The thief of the analyzer's disk" == coalition_name("thief of the analyzer's disk")
