"""Everything is imported below one name, however a program of a checkout is started."""

import importlib
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.source_tree import FOLDERS, ROOT

_ROOMS: Final = [folder for folder in FOLDERS if folder != "shuffledp"]
_STARTS: Final = {
    "a program": (
        "-c",
        "from tests.architecture.test_import_name import _print_names as show; show()",
    ),
    "a module": ("-m", "tests.architecture.test_import_name"),
    "a file": (str(Path(__file__)),),
}


def _second_names() -> list[str]:
    """Load the command line, try to import every room by itself, and return what was loaded."""
    importlib.import_module("shuffledp.deploy.cli")
    for room in _ROOMS:
        with pytest.raises(ImportError, match=f"import shuffledp.{room}$"):
            importlib.import_module(room)
    return [name for name in sys.modules if name.partition(".")[0] in _ROOMS]


def _print_names() -> None:
    """Print the names, those in a worker process after those in this one."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        sys.stdout.write(json.dumps([_second_names(), pool.apply(_second_names)]))


@pytest.mark.parametrize("start", _STARTS.values(), ids=_STARTS)
def test_no_room_has_a_second_name(start: tuple[str, ...]) -> None:
    """
    `import common` fails in a program, and in a process that it starts, and leaves no module.

    Otherwise every class would exist twice, and isinstance would tell them apart without a word.
    """
    written = subprocess.run(
        [sys.executable, *start], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [[], []] == json.loads(written.stdout)


def test_no_room_has_a_second_name_in_the_tests() -> None:
    """Here the checkout is on the path, since tests import `tests.support`."""
    assert [] == _second_names()


if __name__ == "__main__":
    _print_names()
