"""Files that begin with a byte-order mark, and output where the environment says ASCII."""

import codecs
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError, ShuffleDpError
from shuffledp.common.runtime.validation import read_toml
from shuffledp.common.task.canonical import to_json
from shuffledp.deploy.clients.base import read_token
from shuffledp.deploy.commands.connection import read_profile
from shuffledp.deploy.commands.log import read_evidence
from shuffledp.deploy.commands.options import read_identity, read_shuffler_key
from shuffledp.deploy.results.decoder import read_candidates
from shuffledp.deploy.tasks.drafts import read_token_key
from shuffledp.deploy.tasks.schedule import read_series
from shuffledp.user_agent.credentials import CredentialFile
from tests.support.command_line import shown
from tests.support.series import template
from tests.support.tokens import TOKENS

_IDENTITY: Final = SigningIdentity(bytes(31) + b"\x07").public_identity()
_SECRET: Final = "5a" * 32
_READERS: Final[dict[str, tuple[str, Callable[[Path], Any]]]] = {
    "settings": ('listen = "x"', lambda path: read_toml(path, SettingsError, max_bytes=100)),
    "profile": ('analyzer = "h:1"', read_profile),
    "candidates": ("Köln\nBonn\n", read_candidates),
    "credentials": (f"Ada {_SECRET}\n", lambda path: CredentialFile(path).of("Ada")),
    "identity": (_IDENTITY.raw.hex(), read_identity),
    "key": ("09" * 32, read_shuffler_key),
    "operator token": ("token", read_token),
    "token key": (json.dumps(to_json(TOKENS)), lambda path: to_json(read_token_key(path))),
    "evidence": ("{}", read_evidence),
}


@pytest.mark.parametrize("name", _READERS)
def test_a_byte_order_mark_changes_no_file(tmp_path: Path, name: str) -> None:
    """Some editors put one first; it is no part of the first key, name or secret."""
    content, read = _READERS[name]
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    plain.write_text(content, encoding="utf-8")
    marked.write_bytes(codecs.BOM_UTF8 + content.encode())

    assert read(plain) == read(marked)


@pytest.mark.parametrize("name", ["settings", "profile", "candidates", "credentials"])
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_text_in_another_encoding_is_named(tmp_path: Path, name: str, encoding: str) -> None:
    """For every file that people write."""
    content, read = _READERS[name]
    path = tmp_path / "file"
    path.write_bytes(f"{content}# ü".encode(encoding))
    with pytest.raises(ShuffleDpError, match="is not UTF-8 text"):
        read(path)


def test_a_marked_template_is_a_series(tmp_path: Path) -> None:
    """As without the mark."""
    path = template(tmp_path)
    plain = read_series(path)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())

    assert plain == read_series(path)


def test_the_first_of_marked_names_gets_a_credential(tmp_path: Path) -> None:
    """It is the person's name, without the mark."""
    names, people = tmp_path / "names.txt", tmp_path / "people"
    names.write_bytes(codecs.BOM_UTF8 + b"Ada\nBo Li\n")
    shown("issuer", "people", str(names), "--output-dir", str(people))

    assert CredentialFile(people / "credentials.txt").of("Ada")


def _in_ascii(folder: Path, *arguments: str) -> str:
    """Run a command in and with a temporary folder, in an environment of ASCII."""
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", "from shuffledp.deploy.cli import main; main()", *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, **ascii_only, "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=folder,
    )
    assert 0 == done.returncode, done.stderr.decode()
    return done.stdout.decode("utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a new folder with letters outside ASCII and outside the basic plane."""
    made = tmp_path / "Schlüssel 😀"
    (made / "analyzer").mkdir(parents=True)
    return made


def test_output_is_utf_8_in_every_environment(folder: Path) -> None:
    """Paths and names outside ASCII are printed, and read from profiles."""
    (folder / "analyzer" / "address").write_text("unix:/tmp/ü/socket", encoding="utf-8")

    assert f"Written to {folder}/keys." in _in_ascii(folder, "keys", "make", f"{folder}/keys")
    assert "unix:/tmp/ü/socket" in _in_ascii(folder, "init", ".", "--address=agent=unix:/tmp/😀")
    assert "unix:/tmp/😀" == read_profile(folder / "shuffledp.toml")["agent"]


@pytest.mark.slow
def test_services_run_in_a_temporary_folder_outside_ascii() -> None:
    """Their addresses are those of sockets in it, whose paths have room for 107 bytes."""
    options = ("demo", "--users", "200", "--output", "ré.json", "--html", "ré.html")
    with tempfile.TemporaryDirectory(prefix="ü😀-") as short:
        assert "ré.json" in _in_ascii(Path(short), *options)
        assert json.loads((Path(short) / "ré.json").read_text("utf-8"))
