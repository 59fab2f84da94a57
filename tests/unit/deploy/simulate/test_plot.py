from pathlib import Path

import pytest

from common.errors import SettingsError
from deploy.simulate.plot import comparison, draw
from tests.support.simulated_rows import REFUSED, row

_CENTRAL = {"laplace_mse": 1e-7, "gaussian_mse": 2e-7}


def test_a_comparison_has_a_panel_for_each_accounting_and_estimate() -> None:
    """And one of times; refused rows are left out, central mechanisms are lines."""
    rows = [
        row("od-hp", 0.1, (3e-6,), accounting="published", reference=_CENTRAL),
        row("od-hp", 0.1, (3e-6,), reference=_CENTRAL),
        REFUSED,
    ]
    points = comparison(rows)
    panels = list(dict.fromkeys(point.axes for point in points))
    names = [point.series for point in points if point.axes == panels[0]]

    assert 5 == len(panels)
    assert ["od-hp", "central Laplace", "central Gaussian"] == names
    assert {"od-hp"} == {point.x for point in points if point.axes == panels[-1]}


def test_a_picture_is_written_as_png_and_as_svg(tmp_path: Path) -> None:
    """By what the files begin with; nothing to draw and no folder are refused."""
    panels = comparison([row("od-hp", 0.1, (3e-6,), reference=_CENTRAL)])
    png, svg = draw(panels, tmp_path / "picture.png", title="title")

    assert (tmp_path / "picture.png", tmp_path / "picture.svg") == (png, svg)
    assert b"\x89PNG\r\n\x1a\n" == png.read_bytes()[:8]
    assert svg.read_bytes().startswith(b"<?xml")
    with pytest.raises(SettingsError, match="every setting was refused"):
        draw(comparison([REFUSED]), tmp_path / "picture", title="")
    with pytest.raises(SettingsError, match="cannot be written"):
        draw(panels, tmp_path / "nowhere" / "picture", title="")
