from typing import Final

from deploy.simulate.remarks import remarks
from deploy.simulate.row import Accounting
from tests.support.simulated_rows import refused_row, row

_RANKING: Final = "The OD-HP paper ranks OD-HP before MURS, HP-SDP and mixDUMP; this holds here"


def test_where_the_papers_ranking_fails_is_said() -> None:
    """By accounting and estimate, with the targets at which a rival's error is below."""
    rows = [
        row("od-hp", 0.1, (3e-6, 3.1e-6), refined=1e-7),
        row("murs", 0.1, (2e-6, 2.1e-6), refined=2e-7),
        row("od-hp", 0.2, (3e-6, 3.1e-6), refined=1e-7),
        row("murs", 0.2, (1e-6, 1.1e-6), refined=2e-7),
        row("mixdump", 0.2, (1e-6, 1.1e-6), refined=2e-7),
    ]

    sent = "(messages of a user: 2, od-hp 2)"
    murs, mixdump = f"murs at ε = 0.1, 0.2 {sent}", f"mixdump at ε = 0.2 {sent}"
    assert (
        f"{_RANKING} not everywhere: by tight accounting, debiased, less error has {murs}, "
        f"{mixdump}."
    ) == remarks(rows)[0]


def test_standard_errors_of_few_repeats_are_called_uncertain() -> None:
    """Of two to four: one has none, and five are enough."""
    warned = {
        repeats: [s for s in remarks([row("sh", 0.1, (1e-6,) * repeats)]) if "uncertain" in s]
        for repeats in (1, 2, 4, 5)
    }

    assert {1: 0, 2: 1, 4: 1, 5: 0} == {repeats: len(said) for repeats, said in warned.items()}
    assert "of 2 repeats is itself uncertain by some 71%" in warned[2][0]
    assert "of 4 repeats is itself uncertain by some 41%" in warned[4][0]


def test_a_difference_within_chance_is_no_ranking() -> None:
    """3 ± 1 and 2 ± 1."""
    rows = [row("od-hp", 0.1, (2e-6, 4e-6)), row("murs", 0.1, (1e-6, 3e-6))]

    assert f"{_RANKING} at every ε, up to chance." == remarks(rows)[0]


def test_the_ranking_is_spoken_of_once() -> None:
    """Whatever the accountings and estimates; and never of one repeat, which knows no chance."""
    by_both: list[tuple[str, Accounting]] = [
        (protocol, accounting)
        for protocol in ("od-hp", "murs")
        for accounting in ("published", "tight")
    ]
    twice = [row(protocol, 0.1, (1e-6, 2e-6), accounting) for protocol, accounting in by_both]
    once = [row(protocol, 0.1, (1e-6,), accounting) for protocol, accounting in by_both]

    assert 1 == len([sentence for sentence in remarks(twice) if "ranks" in sentence])
    assert [] == remarks(once)


def test_no_ranking_is_spoken_of_where_the_paper_makes_none() -> None:
    """Without OD-HP, without a rival, or against protocols that it does not compare."""
    assert [] == remarks([row("murs", 0.1, (1e-6,)), row("sh", 0.1, (1e-6,))])
    assert [] == remarks([row("od-hp", 0.1, (1e-6,)), row("puredump", 0.1, (1e-7,))])
    apart = [row("od-hp", 0.1, (2e-6,)), row("murs", 0.1, (1e-6,), accounting="published")]
    assert [] == remarks(apart)


def test_notes_are_said_once_and_refusals_each() -> None:
    """With the targets that they are about, in order."""
    rows = [
        row("sh", 0.2, (1e-6,), note="it is blunt"),
        row("sh", 0.1, (1e-6,), note="it is blunt"),
        refused_row("aue"),
    ]

    assert [
        "sh: it is blunt (ε = 0.1, 0.2).",
        "aue by own bounds, ε = 0.1: left out, it is too much.",
    ] == remarks(rows)
