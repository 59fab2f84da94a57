import dataclasses
import io
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from rich.console import Console

from common.errors import SettingsError
from deploy.simulate.experiments.key_value import Experiment, Outcome, plot, remarks, run, show

_SMALL: Final = Experiment(
    n_users=20_000,
    shares=(0.3, 0.5, 0.7),
    key_share=0.25,
    local_epsilons=(6.0,),
    iterations=(1, 3),
    repeats=30,
)
_FAR: Final = 5.2


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """One run of the small experiment."""
    return run(_SMALL)


def _one(outcomes: list[Outcome], method: str, iterations: int) -> Outcome:
    (found,) = [each for each in outcomes if (each.method, each.iterations) == (method, iterations)]
    return found


def test_iterating_takes_off_the_bias_that_theory_says(outcomes: list[Outcome]) -> None:
    """
    Within 5.2 standard errors of theory, each of which fails by chance with probability 2e-7.

    Three iterations leave less than half of what one does.
    """
    one, three = _one(outcomes, "iterated", 1), _one(outcomes, "iterated", 3)
    for each in (one, three):
        # Of the mean over keys and repeats, known from theory and not from thirty repeats.
        error = each.spread_theory / math.sqrt(len(_SMALL.shares) * _SMALL.repeats)
        assert abs(each.pull - each.pull_theory) < _FAR * error

    assert 0 < three.pull_theory < one.pull_theory / 2
    assert three.pull + _FAR * (three.pull_error + one.pull_error) < one.pull


def test_iterating_costs_variance(outcomes: list[Outcome]) -> None:
    """A value's ε is split; measured as in theory to a third, of 90 estimates 4.5 deviations."""
    one, three = _one(outcomes, "iterated", 1), _one(outcomes, "iterated", 3)

    assert three.spread_theory > 1.5 * one.spread_theory
    for each in (one, three):
        assert each.spread == pytest.approx(each.spread_theory, rel=1 / 3)


def test_one_round_with_the_fakes_taken_out_has_no_bias(outcomes: list[Outcome]) -> None:
    """Less error than either, here; and no formula for its spread."""
    corrected = _one(outcomes, "fakes taken out", 1)

    assert abs(corrected.pull) < _FAR * corrected.spread / math.sqrt(3 * _SMALL.repeats)
    assert 0 == corrected.pull_theory
    assert math.isnan(corrected.spread_theory)
    assert corrected.error < _one(outcomes, "iterated", 1).error


def test_the_same_seed_gives_the_same_figures() -> None:
    """And another one others."""
    tiny = dataclasses.replace(_SMALL, n_users=500, repeats=2)
    first, again = run(tiny), run(tiny)
    other = run(dataclasses.replace(tiny, seed=2))

    assert [each.error for each in first] == [each.error for each in again]
    assert first[0].error != other[0].error


def test_keys_have_means_to_either_side() -> None:
    """So that a pull towards the middle is told from a shift."""
    assert [0.6, -0.6, 0.6] == Experiment(shares=(0.1, 0.2, 0.3)).means.tolist()


def _outcome(total: float, method: Any, iterations: int, error: float) -> Outcome:
    return Outcome(
        local_epsilon=total,
        method=method,
        iterations=iterations,
        pull=0.25,
        pull_error=0.01,
        pull_theory=0.24,
        spread=0.125,
        spread_theory=0.12 if method == "iterated" else math.nan,
        error=error,
    )


_MADE: Final = [
    _outcome(1.0, "fakes taken out", 1, 0.11),
    _outcome(1.0, "iterated", 1, 0.33),
    _outcome(1.0, "iterated", 2, 0.22),
    _outcome(2.0, "fakes taken out", 1, 0.05),
    _outcome(2.0, "iterated", 1, 0.15),
]


def test_what_is_best_is_said_of_every_total() -> None:
    """With what one round errs by if corrected."""
    first, second = remarks(_MADE)

    assert "At ε = 1 the error is least with 2 iterations, 0.2200; " in first
    assert "one round with the fakes taken out errs by 0.1100." in first
    assert "At ε = 2 the error is least with 1 iteration, 0.1500; " in second
    assert "one round with the fakes taken out errs by 0.0500." in second


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_outcome_has_a_line_of_whole_figures(width: int) -> None:
    """However narrow the terminal."""
    written = io.StringIO()
    show(_MADE, Console(file=written, width=width))
    text = written.getvalue()

    assert 5 == text.count("±0.0100")
    for figure in ("0.2500", "0.2400", "0.1250", "0.1100", "0.3300", "0.2200"):
        assert figure in text
    assert "nan" not in text


def test_a_figure_is_written_as_png_and_as_svg(tmp_path: Path) -> None:
    """By what the files begin with."""
    png, svg = plot(_MADE, tmp_path / "picture", "title")

    assert b"\x89PNG\r\n\x1a\n" == png.read_bytes()[:8]
    assert b"</svg>" in svg.read_bytes()
    with pytest.raises(SettingsError, match="cannot be written"):
        plot(_MADE, tmp_path / "nowhere" / "picture", "title")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"mean": 0.0}, r"mean is 0\.0"),
        ({"mean": 0.9}, r"mean is 0\.9"),
        ({"repeats": 1}, "repeats is 1"),
        ({"shares": (0.5, 1.0)}, "above 0 and below 1"),
    ],
)
def test_an_experiment_that_shows_nothing_is_refused(changes: dict[str, Any], rule: str) -> None:
    """No bias, no standard error, no fakes."""
    with pytest.raises(SettingsError, match=rule):
        dataclasses.replace(_SMALL, **changes)


def test_errors_are_both_bias_and_noise(outcomes: list[Outcome]) -> None:
    """A mean squared error is at least the square of the mean bias, and about both together."""
    one = _one(outcomes, "iterated", 1)

    assert one.error > abs(one.pull)
    both = np.hypot(one.pull, one.spread)
    assert 0.95 * both < one.error < 1.25 * both  # 1.11 to 1.13 over seeds: keys differ in bias
