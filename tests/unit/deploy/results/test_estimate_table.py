import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from common.messages.estimate import KeyValues, Means, Owners
from common.task.specs import KeyValueSpec, spec_as
from deploy.results.estimate_table import (
    EstimateTable,
    decimals_of,
    of_key_values,
    of_means,
    print_table,
    written,
)
from tests.support.kind_tasks import kind_task

_MEANS = Means(
    means=np.array([1.5, 3.0, 2.0]),
    standard_errors=np.array([0.5, 0.25, 0.125]),
    shrunk=np.array([1.75, 2.75, 2.0]),
    mse_theory=0.1,
)
_PAIRS = KeyValues(
    means_with_fakes=np.array([1.25, 1.75, 2.25]),
    errors_with_fakes=np.array([0.05, 0.1, 0.2]),
    reports=np.array([1200, 900, 700]),
    owners=Owners(
        frequencies=np.array([0.25, 0.75, 0.5]),
        frequency_errors=np.array([0.01, 0.02, 0.03]),
        means=np.array([1.0, 2.0, 3.0]),
        mean_errors=np.array([0.1, 0.2, 0.3]),
    ),
)
_LATER = dataclasses.replace(_PAIRS, owners=None)
_THREE = np.array([0.5, 0.25, 0.125])
_SPEC = spec_as(kind_task("priv-kv").mechanism, KeyValueSpec)
_FAKES = dataclasses.replace(_SPEC, fakes=(1.0, 2.0, 3.0))


def _printed(table: EstimateTable) -> str:
    printed = io.StringIO()
    print_table(table, Console(file=printed, width=200))
    return printed.getvalue()


def test_a_mean_has_its_own_interval() -> None:
    """1.96 standard errors to each side, of the unbiased mean; the shrunk one stands beside it."""
    line = of_means(_MEANS, (), most=3).lines[0]

    assert (1.5, ("0.50", "1.75")) == (line.figure, line.more)
    assert [1.5 - 0.98, 1.5 + 0.98] == pytest.approx([line.low, line.high], abs=1e-4)


@pytest.mark.parametrize(
    ("size", "labels", "names"),
    [
        (1, (), ("mean",)),
        (1, ("hours",), ("hours",)),
        (3, (), ("number 0", "number 1", "number 2")),
        (3, ("a", "b", "c"), ("a", "b", "c")),
    ],
)
def test_numbers_are_named_by_labels_or_by_their_place(
    size: int, labels: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """A mean alone needs no number."""
    ones = np.ones(size)
    means = Means(means=ones, standard_errors=ones, shrunk=ones, mse_theory=1.0)

    assert names == tuple(line.name for line in of_means(means, labels, most=9).lines)


def test_numbers_keep_their_order_and_no_more_are_shown_than_asked_for() -> None:
    """The table knows how many there are."""
    table = of_means(_MEANS, (), most=2)

    assert ([1.5, 3.0], 3) == ([line.figure for line in table.lines], table.size)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_fewer_than_three_means_are_not_shown_as_shrunk(size: int) -> None:
    """There is nothing that they could be shrunk by."""
    table = of_means(
        Means(
            means=_THREE[:size], standard_errors=_THREE[:size], shrunk=_THREE[:size], mse_theory=1
        ),
        (),
        most=3,
    )

    assert (size == 3) == ("shrunk" in table.more) == ("shrunk" in table.notes[0])
    assert {len(table.more)} == {len(line.more) for line in table.lines}


@pytest.mark.parametrize(
    ("errors", "decimals"),
    [([12.0, 300.0], 0), ([0.5], 2), ([0.099, 2.0], 3), ([1e-30], 8), ([0.0], None), ([], None)],
)
def test_figures_have_the_decimals_that_noise_leaves_sense_to(
    errors: list[float], decimals: int | None
) -> None:
    """Two digits of the least standard error; none is known of no error."""
    assert decimals == decimals_of(np.array(errors))


def test_a_number_without_decimals_has_four_digits() -> None:
    """An infinite one is called so, and what rounds to 0 has no sign."""
    assert ["0.1235", "0.12", "inf", "0.000"] == [
        written(0.123456, None),
        written(0.123456, 2),
        written(float("inf"), 2),
        written(-0.0004, 3),
    ]


def test_biased_means_get_no_interval_of_confidence() -> None:
    """What a projection leaves out is in none, and the note says so."""
    biased = dataclasses.replace(_MEANS, unbiased=False)
    right, wrong = of_means(_MEANS, (), most=3), of_means(biased, (), most=3)

    assert ("95% interval", "± noise alone") == (right.interval, wrong.interval)
    assert "Means are biased" in wrong.notes[0]
    assert "Means are biased" not in right.notes[0]


def test_keys_come_by_their_share_in_both_tables() -> None:
    """The most frequent first, each beside its own mean."""
    shares, means = of_key_values(_PAIRS, _SPEC, ("a", "b", "c"), most=2)

    assert [("b", 0.75), ("c", 0.5)] == [(line.name, line.figure) for line in shares.lines]
    assert [("b", 2.0), ("c", 3.0)] == [(line.name, line.figure) for line in means.lines]
    assert (3, 3) == (shares.size, means.size)


def test_a_key_that_nobody_reported_on_has_no_line() -> None:
    """Neither a share of one half nor a mean in the middle stands for it; a note counts them."""
    silent = dataclasses.replace(_PAIRS, reports=np.array([1200, 0, 700]))
    shares, means = of_key_values(silent, _SPEC, ("a", "b", "c"), most=3)
    (later,) = of_key_values(
        dataclasses.replace(silent, owners=None), _FAKES, ("a", "b", "c"), most=3
    )

    assert ["c", "a"] == [line.name for line in shares.lines] == [line.name for line in means.lines]
    assert ["a", "c"] == [line.name for line in later.lines]
    assert ("0.010", "1,200") == shares.lines[1].more
    assert "Nobody reported on 1 of the keys: nothing is known of them." in shares.notes
    assert "Nobody reported on 1 of the keys: nothing is known of them." in later.notes
    assert not any("Nobody" in note for note in of_key_values(_PAIRS, _SPEC, (), most=3)[0].notes)


def test_what_fakes_were_is_told_as_the_task_has_it() -> None:
    """They were taken off; where few own a key that leaves little."""
    _, middle = of_key_values(_PAIRS, _SPEC, (), most=3)
    _, named = of_key_values(_PAIRS, _FAKES, (), most=3)

    assert "a fake value, the middle of the range, which" in middle.notes[0]
    assert "a fake value, what the task names for it, which" in named.notes[0]


def test_a_later_iteration_shows_no_shares_and_no_interval_of_confidence() -> None:
    """One table, of means with fakes by the keys' order, and a note that says how they mislead."""
    (means,) = of_key_values(_LATER, _FAKES, ("a", "b", "c"), most=2)
    first = means.lines[0]

    assert ("mean with fakes", "± noise alone") == (means.figure, means.interval)
    assert [("a", 1.25), ("b", 1.75)] == [(line.name, line.figure) for line in means.lines]
    assert [1.25 - 0.098, 1.25 + 0.098] == pytest.approx([first.low, first.high], abs=1e-4)
    assert "what the task names for it, and how far these pull" in means.notes[0]


def test_a_known_truth_gets_a_column() -> None:
    """In a demo only."""
    known = of_means(_MEANS, (), most=3, truth=np.array([1.25, 2.5, 2.0]))

    assert " truth " in _printed(known)
    assert "1.25" in _printed(known)
    assert "1.25" not in _printed(of_means(_MEANS, (), most=3))


def test_a_table_that_shows_some_says_of_how_many() -> None:
    """And one that shows all does not."""
    assert "each of 3 numbers, 2 of them" in _printed(of_means(_MEANS, (), most=2))
    assert "of them" not in _printed(of_means(_MEANS, (), most=3))


@pytest.mark.parametrize(
    ("label", "printed"), [("[red]food[/red]", "[red]food[/red]"), ("a\x1b[2Jb", "\\x1b[2Jb")]
)
def test_a_label_steers_no_terminal(label: str, printed: str) -> None:
    """Neither markup nor control characters do anything."""
    text = _printed(of_means(_MEANS, (label, "b", "c"), most=3))

    assert printed in text
    assert "\x1b" not in text
