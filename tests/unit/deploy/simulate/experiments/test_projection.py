"""The projection experiment: its parts in seconds, and its figures against another program's."""

import io
import math
from typing import Final

import numpy as np
import pytest
from rich.console import Console

from common.mechanisms.numeric.multi_rphm import MultiRphm
from deploy.simulate.errors import Summary
from deploy.simulate.experiments.projection import (
    Estimate,
    Point,
    Population,
    Reproduction,
    Setting,
    centred,
    people,
    plot,
    remarks,
    run,
    settings,
    show,
)
from tests.support.mechanisms import NONCE

_SMALL: Final = [
    Setting(population=population, dimensions=d, local_epsilon=epsilon)
    for population in ("alike", "differing")
    for d, epsilon in [(30, 1.0), (20, 1.0), (400, 2.0)]
]

_KNOWN: Final[dict[tuple[int, float], tuple[float, float]]] = {
    (200, 1.0): (0.0869, 0.0834),
    (300, 1.0): (0.1328, 0.0896),
    (400, 1.0): (0.1754, 0.0930),
    (500, 1.0): (0.2239, 0.0971),
    (600, 1.0): (0.2705, 0.1002),
    (400, 0.6): (0.4761, 0.1216),
    (400, 0.8): (0.2702, 0.1022),
    (400, 1.2): (0.1253, 0.0883),
    (400, 1.4): (0.0915, 0.0855),
    (400, 2.0): (0.0490, 0.0814),
}
"""Errors of Multi-HM and Multi-RPHM in another program, of 10 runs each, by (d, ε)."""


@pytest.fixture(scope="module")
def small() -> Reproduction:
    """A few settings of 300 people, twice each."""
    return run(np.random.default_rng(1), chosen=_SMALL, n_users=300, runs=2)


def _shown(found: Reproduction, width: int) -> str:
    text = io.StringIO()
    show(found, Console(file=text, width=width, color_system=None))
    return text.getvalue()


def test_the_settings_are_those_of_the_paper_and_one_more() -> None:
    """Five numbers of dimensions at ε = 1, five ε at 400 dimensions, and ε = 2; each once."""
    alike = settings(["alike"])
    assert set(_KNOWN) == {(each.dimensions, each.local_epsilon) for each in alike}
    assert len(_KNOWN) == len(alike)
    assert 2 * len(alike) == len(settings())


@pytest.mark.parametrize("population", ["alike", "differing"])
def test_answering_0_errs_alike_in_both_populations(population: Population) -> None:
    """The attributes' mean square is 1/9 in both; 10,000 people are close to it."""
    setting = Setting(population=population, dimensions=50, local_epsilon=1.0)
    values = people(setting, 10_000, np.random.default_rng(2))

    assert (np.abs(values) <= 1).all()
    assert 1 / 9 == pytest.approx(float((values.mean(axis=0) ** 2).mean()), rel=0.02)
    spread = values.mean(axis=0).max() - values.mean(axis=0).min()
    assert spread < 0.05 if population == "alike" else spread > 1


def test_a_shared_level_is_put_back_exactly() -> None:
    """Where all means are one level and there is no noise, nothing of it is lost."""
    mechanism = MultiRphm.for_epsilon(30, 1.0, NONCE)
    level = np.full(30, 0.05)
    projected = mechanism.matrix @ (level @ mechanism.matrix)

    assert mechanism.bias_floor(level) > 0.5 * 0.05**2
    np.testing.assert_allclose(centred(mechanism, projected), level, rtol=1e-12)


@pytest.mark.slow
def test_every_estimate_has_an_error_in_every_setting(small: Reproduction) -> None:
    """And a standard error, over the runs."""
    assert _SMALL == [point.setting for point in small.points]
    for point in small.points:
        assert 9 == len(point.errors)
        for name, error in point.errors.items():
            assert error.mean > 0
            assert error.standard_error > 0, name


def test_points_are_found_by_what_they_vary(small: Reproduction) -> None:
    """Dimensions at ε = 1, and ε at 400 dimensions."""
    by_d = [point.setting.dimensions for point in small.by_dimensions("alike")]
    by_epsilon = [point.setting.local_epsilon for point in small.by_epsilon("differing")]

    assert [20, 30] == by_d
    assert [2.0] == by_epsilon


def test_progress_is_told_run_by_run() -> None:
    """How many are done, and of how many."""
    told: list[tuple[int, int]] = []
    run(
        np.random.default_rng(3),
        chosen=_SMALL[:1],
        n_users=50,
        runs=3,
        progress=lambda done, total: told.append((done, total)),
    )

    assert [(1, 3), (2, 3), (3, 3)] == told


def test_a_wide_table_has_every_figure(small: Reproduction) -> None:
    """A line a setting, a column an estimate; and both populations."""
    said = _shown(small, 240)

    for name in small.points[0].errors:
        assert name in said
    error = small.points[0].errors["Multi-HM"].mean
    assert (f"{error:.4f}" if error >= 0.01 else f"{error:.5f}") in said
    assert "All attributes have one mean" in said
    assert "Attributes have means evenly" in said
    assert "A wider terminal" not in said


def test_a_narrow_table_leaves_estimates_out_and_says_so(small: Reproduction) -> None:
    """The two that the paper compares stay."""
    said = _shown(small, 100)

    assert "Multi-RPHM" in said
    assert "MeanEST" not in said
    assert "A wider terminal shows more estimates." in said


def _point(d: int, hybrid: float, projected: float) -> Point:
    errors: dict[Estimate, Summary] = {
        "Multi-HM": Summary(mean=hybrid, standard_error=0.03),
        "Multi-RPHM": Summary(mean=projected, standard_error=0.04),
    }
    for name in ("Multi-HM × q/d", "Multi-HM shrunk to 0", "Multi-HM shrunk to its mean"):
        errors[name] = Summary(mean=0.1, standard_error=0.0)
    errors["answer 0"] = Summary(mean=9.0, standard_error=0.0)
    setting = Setting(population="alike", dimensions=d, local_epsilon=1.0)
    return Point(setting=setting, errors=errors)


def test_what_is_too_close_is_not_called_a_difference() -> None:
    """Three standard errors of it: 3·√(.03² + .04²) = .15."""
    points = [_point(1, 1.0, 0.84), _point(2, 1.0, 0.86), _point(3, 1.0, 1.16)]
    said = remarks(points)

    assert said[0] == (
        "Multi-RPHM against Multi-HM, by (d, ε), errs less at (1, 1); more at (3, 1); "
        "about as much at (2, 1)."
    )
    assert "Multi-HM × q/d errs less than Multi-RPHM everywhere." in said
    assert said[-1].endswith("errs more at (1, 1), (2, 1), (3, 1).")


def test_every_sentence_begins_with_a_capital() -> None:
    """Also that on answering 0, which is told in words: its column gives way to narrow screens."""
    said = remarks([_point(1, 1.0, 0.84)])

    assert [] == [sentence for sentence in said if not sentence[0].isupper()]
    assert said[-1].startswith("Answering 0 for every attribute against Multi-RPHM")


def test_a_figure_has_a_row_for_each_population(small: Reproduction) -> None:
    """Two panels each, with every estimate in each of them."""
    pytest.importorskip("matplotlib")
    figure = plot(small)

    assert 4 == len(figure.axes)
    for axes in figure.axes:
        assert 9 == len(axes.get_legend_handles_labels()[1])
    alike = Reproduction(n_users=300, runs=2, points=tuple(small.of("alike")))
    assert 2 == len(plot(alike).axes)


@pytest.mark.slow
def test_the_figures_of_the_paper_come_out_again() -> None:
    """
    Multi-HM and Multi-RPHM are within three standard errors of another program's, at all settings.

    Seed 1. That program gives no standard errors: of 10 runs, they are taken for ours, so that a
    difference has √2 of these. Known to 9 degrees of freedom, one of these 20 differences is above
    three with chance .015: over seeds some are now and then, and the seed is fixed. Averages
    of ten ratios are known to 1 % and .6 %: three of these are allowed.
    """
    found = run(np.random.default_rng(1), chosen=settings(["alike"]))
    ratios: list[list[float]] = []
    for point in found.points:
        errors = point.errors
        known = _KNOWN[point.setting.dimensions, point.setting.local_epsilon]
        ours = (errors["Multi-HM"], errors["Multi-RPHM"])
        for here, there in zip(ours, known, strict=True):
            assert abs(here.mean - there) <= 3 * math.sqrt(2) * here.standard_error
        ratios.append([here.mean / there for here, there in zip(ours, known, strict=True)])
        _check_what_beats_it(point)
    averages = np.mean(ratios, axis=0)

    assert abs(averages[0] - 1) < 0.03
    assert abs(averages[1] - 1) < 0.02
    wins = [p for p in found.points if _mean(p, "Multi-RPHM") < _mean(p, "Multi-HM")]
    assert {2.0} == {p.setting.local_epsilon for p in found.points if p not in wins}


def _mean(point: Point, name: Estimate) -> float:
    return point.errors[name].mean


def _check_what_beats_it(point: Point) -> None:
    """Shrinking does, and the means' square is what answering 0 costs."""
    projected = _mean(point, "Multi-RPHM")
    assert 0.1109 == pytest.approx(_mean(point, "answer 0"), rel=0.005)
    assert 0.0770 == pytest.approx(_mean(point, "projection alone"), rel=0.06)
    assert _mean(point, "Multi-HM × q/d") < projected
    assert _mean(point, "Multi-HM shrunk to 0") < projected
    assert _mean(point, "Multi-HM shrunk to its mean") < 0.01
    assert _mean(point, "Multi-RPHM centred") < 0.6 * projected


@pytest.mark.slow
def test_where_attributes_differ_only_shrinking_to_a_point_is_left() -> None:
    """
    Their common mean tells nothing: centring and shrinking to it gain nothing, and the claim fails.

    Seed 2, 10 runs of 400 dimensions at ε = 1 and 2: the gaps are many standard errors wide.
    """
    chosen = [
        Setting(population="differing", dimensions=400, local_epsilon=epsilon)
        for epsilon in (1.0, 2.0)
    ]
    for point in run(np.random.default_rng(2), chosen=chosen).points:
        projected, shrunk = _mean(point, "Multi-RPHM"), _mean(point, "Multi-HM shrunk to 0")
        assert projected == pytest.approx(_mean(point, "Multi-RPHM centred"), rel=0.05)
        assert shrunk == pytest.approx(_mean(point, "Multi-HM shrunk to its mean"), rel=0.05)
        assert shrunk < 0.85 * projected
        claimed = _mean(point, "Multi-RPHM") < _mean(point, "Multi-HM")
        assert claimed == (point.setting.local_epsilon == 1.0)
