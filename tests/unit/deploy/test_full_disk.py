"""Commands that write several files, on a disk that is full after some bytes."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from shuffledp.deploy.clients.key_folder import KeyFolder
from tests.support.command_line import run_limited

_NOW: Final = 2_000_000_000.0
_ASKED: Final = ("--reports-per-day", "1e8", "--deadline", "6", "--opening-microseconds", "65")


def _tree(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*"))
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"folder"
        for path in paths
    }


@pytest.mark.parametrize(
    ("most", "command", "file"),
    [
        (0, ("keys", "make", "deep/keys"), "deep/keys/authorities/analyzer.key"),
        (300, ("keys", "make", "deep/keys"), "deep/keys/authorities/analyzer.pem"),
        (1200, ("keys", "make", "deep/keys"), "authority.pem"),
        (0, ("issuer", "people", "names.txt", "--output-dir", "people"), "people/credentials.txt"),
        (200, ("issuer", "people", "names.txt", "--output-dir", "people"), "credentials.txt"),
        (0, ("init", ".", "--address=analyzer=h:1", "--output", "p.toml"), "p.toml"),
        (0, ("keys", "identity", "state"), "state"),
    ],
)
def test_a_full_disk_is_named_by_its_file_and_leaves_nothing(
    tmp_path: Path, most: int, command: Sequence[str], file: str
) -> None:
    """One sentence, no traceback; no file or folder that the command made is left."""
    (tmp_path / "names.txt").write_text("Ada\nBo\nCy\n", encoding="utf-8")
    before = _tree(tmp_path)
    status, complaint = run_limited(most, tmp_path, *command)

    assert 1 == status
    assert complaint.startswith("shuffledp: ")
    assert (1, True) == (complaint.count("\n"), file in complaint)
    assert "None" not in complaint
    if command[:2] != ("keys", "identity"):
        assert before == _tree(tmp_path)


@pytest.mark.parametrize(
    ("most", "command"),
    [
        (300, ("keys", "make", "keys", "--party", "issuer")),
        (1300, ("keys", "make", "keys", "--party", "issuer")),
        (0, ("keys", "renew", "keys", "--force")),
        (700, ("keys", "renew", "keys", "--force")),
        (50, ("keys", "revoke", "keys", "analyzer")),
        (200, ("keys", "revoke", "keys", "analyzer")),
    ],
)
def test_a_folder_of_keys_stays_as_it_was_on_a_full_disk(
    tmp_path: Path, most: int, command: Sequence[str]
) -> None:
    """Certificates, lists and files of trust fit together as before."""
    KeyFolder(tmp_path / "keys").make(["analyzer", "shuffler"], [], _NOW)
    before = _tree(tmp_path)
    status, complaint = run_limited(most, tmp_path, *command)

    assert (1, True) == (status, "cannot be written" in complaint), complaint
    assert before == _tree(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        ("--version",),
        pytest.param(("plan", "--help"), marks=pytest.mark.slow),
        pytest.param(("capacity", *_ASKED), marks=pytest.mark.slow),
        pytest.param(("capacity", *_ASKED, "--json"), marks=pytest.mark.slow),
    ],
)
def test_full_standard_output_is_one_sentence(command: Sequence[str]) -> None:
    """Also where Python writes only at the end; an output that nobody reads ends quietly."""
    status, words = {}, {}
    for name in ("/dev/full", "a closed pipe"):
        reader, writer = os.pipe()
        os.close(reader)
        with open(name if name == "/dev/full" else writer, "wb") as output:  # noqa: PTH123
            done = subprocess.run(
                [sys.executable, "-c", "from shuffledp.deploy.cli import main; main()", *command],
                cwd=Path(__file__).parents[3],
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        status[name], words[name] = done.returncode, done.stderr

    assert {1} == set(status.values())
    assert ["shuffledp: standard output: No space left on device\n", ""] == list(words.values())
