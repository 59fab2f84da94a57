"""The figures of seeded commands."""

from typing import Any, Final

import pytest

from tests.support.recorded_commands import RecordedCommand, recorded

_REL_TOL: Final = 1e-9

_COMMANDS: Final = [
    pytest.param(each, id=each.commands[-1], marks=pytest.mark.slow if each.slow else ())
    for each in recorded()
]


def _figures(output: Any, path: str = "") -> dict[str, Any]:
    """Return every figure and text of an output by its path."""
    if isinstance(output, dict | list):
        parts = output.items() if isinstance(output, dict) else enumerate(output)
        inner = [_figures(each, f"{path}/{key}") for key, each in parts]
        return {name: figure for figures in inner for name, figure in figures.items()}
    return {path: output}


@pytest.mark.parametrize("recorded_command", _COMMANDS)
def test_a_seeded_command_prints_the_recorded_figures(recorded_command: RecordedCommand) -> None:
    """Floats agree to nine digits, all else exactly."""
    expected, found = _figures(recorded_command.output), _figures(recorded_command.run())

    assert expected.keys() == found.keys()
    for path, figure in expected.items():
        is_float = isinstance(figure, float) and isinstance(found[path], float)
        same = pytest.approx(figure, rel=_REL_TOL, abs=0) if is_float else figure
        assert same == found[path], path
