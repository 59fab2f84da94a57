from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.lab.simulate.plot import comparison, draw
from tests.support.simulated_rows import REFUSED, row

_CENTRAL = {"laplace_mse": 1e-7, "gaussian_mse": 2e-7}


@pytest.mark.slow
def test_a_comparison_has_panels_and_is_written_as_png_and_as_svg(tmp_path: Path) -> None:
    """A panel per accounting and estimate, by name at one ε, and one of run times."""
    rows = [
        row("od-hp", 0.1, (3e-6,), accounting="published", reference=_CENTRAL),
        row("od-hp", 0.1, (3e-6,), reference=_CENTRAL),
        REFUSED,
    ]
    points = comparison(rows)
    panels = list(dict.fromkeys(point.axes for point in points))
    names = [point.series for point in points if point.axes == panels[0]]
    png, svg = draw(points, tmp_path / "picture.png", title="title")

    assert 5 == len(panels)
    assert ["od-hp", "central Laplace", "central Gaussian"] == names
    assert {"od-hp"} == {point.x for point in points if point.axes == panels[-1]}
    assert (tmp_path / "picture.png", tmp_path / "picture.svg") == (png, svg)
    assert b"\x89PNG\r\n\x1a\n" == png.read_bytes()[:8]
    text = svg.read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    notes = ("central ε against the analyzer: 0.1", "parameters: tight", "cell counts drawn")
    assert [4, 1, 0] == [text.count(f"<!-- {note}") for note in notes]
    with pytest.raises(SettingsError, match="every setting was skipped"):
        draw(comparison([REFUSED]), tmp_path / "picture", title="")
    with pytest.raises(SettingsError, match="cannot be written"):
        draw(points, tmp_path / "nowhere" / "picture", title="")
