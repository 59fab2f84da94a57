"""Commands write whole files, or leave them unchanged."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.results.export import write_csv, write_parquet
from shuffledp.deploy.tasks.drafts import TASK_FILES, save_task
from shuffledp.deploy.terminal.files import all_or_nothing, atomic_output, write
from tests.support.disks import disk_of
from tests.support.results import result
from tests.support.tasks import published

_RESULT = result(TaskDigest(b"\xd1" * 32))


@pytest.mark.parametrize(
    "writes",
    [
        lambda path: write(path, "new" * 1000),
        lambda path: write_csv(path, {"label": ["a" * 200, "b"]}),
        lambda path: write_parquet(path, _RESULT, {"label": ["a" * 200, "b"]}),
    ],
    ids=["text", "csv", "parquet"],
)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, writes: Callable[[Path], None]
) -> None:
    """The message names the file."""
    path = tmp_path / "kept"
    path.write_text("old", encoding="utf-8")
    with disk_of(100), pytest.raises(SettingsError, match=r"kept cannot be written: .*File too"):
        writes(path)

    assert "old" == path.read_text(encoding="utf-8")
    assert [path] == list(tmp_path.iterdir())
    writes(path)
    assert path.stat().st_size > 100
    assert [path] == list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_task_that_was_saved(tmp_path: Path) -> None:
    """Both of its files are unchanged."""
    old, new = published().signed, published(labels=tuple("ü" * n for n in range(1, 101))).signed
    save_task(tmp_path / "agreed", old)
    room = len(old.task_bytes) + 100
    with disk_of(room), pytest.raises(SettingsError, match=r"task\.json cannot be written"):
        save_task(tmp_path / "agreed", new)

    found = [(tmp_path / "agreed" / name).read_bytes() for name in TASK_FILES]
    assert [old.task_bytes, old.signature] == found


def test_a_file_keeps_its_mode_and_a_link_its_target(tmp_path: Path) -> None:
    """The target is written."""
    target, link = tmp_path / "private", tmp_path / "link"
    target.touch(mode=0o600)
    link.symlink_to(target)
    for path, text in ((target, "new"), (link, "newer")):
        write(path, text)

        assert link.is_symlink()
        assert 0o600 == stat.S_IMODE(target.stat().st_mode)
        assert text == target.read_text(encoding="utf-8")


def test_a_pipe_and_standard_output_are_written_in_place(tmp_path: Path) -> None:
    """Neither is a regular file."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe", "through")
    code = (
        "from pathlib import Path; from shuffledp.deploy.terminal.files import write;"
        "write(Path('/dev/stdout'), 'out')"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert b"through" == os.read(reader, 100)
    assert b"out" == printed.stdout
    assert ["pipe"] == [each.name for each in tmp_path.iterdir()]
    os.close(reader)


def test_an_interrupted_command_leaves_the_old_file(tmp_path: Path) -> None:
    """Nothing is left beside it."""
    path = tmp_path / "kept"
    write(path, "old")

    def interrupted() -> None:
        with atomic_output(path) as scratch:
            scratch.write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "old" == path.read_text(encoding="utf-8")
    assert [path] == list(tmp_path.iterdir())


def test_a_replaced_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new one is not, and neither is one that a failed change restores."""
    path = tmp_path / "result.html"
    for text, said in (("old", ""), ("new", f"Replaced {path}.\n")):
        write(path, text)
        assert said == capsys.readouterr().err

    with suppress(KeyboardInterrupt), all_or_nothing([tmp_path], "*.html"):
        path.write_text("half", encoding="utf-8")
        raise KeyboardInterrupt

    assert ("new", "") == (path.read_text(encoding="utf-8"), capsys.readouterr().err)
