from pathlib import Path
from typing import Final

import pytest

from common.errors import SettingsError
from deploy.simulate import figure
from tests.support.simulated_rows import refused_row, row

_CENTRAL: Final = {0.1: {"central Laplace": 1e-7, "central Gaussian": 2e-7}}


def test_a_figure_is_written_as_png_and_as_svg(tmp_path: Path) -> None:
    """By what the files begin with; refused rows are left out, remarks are in the text."""
    rows = [
        row("od-hp", 0.1, (3e-6,), accounting="published"),
        row("od-hp", 0.1, (3e-6,)),
        refused_row("murs"),
    ]
    drawn = figure.draw(rows, _CENTRAL, title="title", remarks=["a remark"])
    png, svg = figure.save(drawn, tmp_path / "picture.png")

    assert (tmp_path / "picture.png", tmp_path / "picture.svg") == (png, svg)
    assert b"\x89PNG\r\n\x1a\n" == png.read_bytes()[:8]
    assert svg.read_bytes().startswith(b"<?xml")
    assert b"</svg>" in svg.read_bytes()


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    """So is a folder that is not there."""
    with pytest.raises(SettingsError, match="every setting was refused"):
        figure.draw([refused_row("murs")], _CENTRAL, title="")
    drawn = figure.draw([row("od-hp", 0.1, (3e-6,))], _CENTRAL, title="")
    with pytest.raises(SettingsError, match="cannot be written"):
        figure.save(drawn, tmp_path / "nowhere" / "picture")
