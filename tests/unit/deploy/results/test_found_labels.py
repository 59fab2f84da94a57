import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.errors import SettingsError
from deploy.cli import app
from deploy.results.export import read_result
from deploy.results.found_labels import FoundTexts, labels_fragment

_HASHES = FoundTexts(kind="open", encoding="hash", most_bytes=255, texts=("00ff" * 4, "11ee" * 4))


def _texts(*texts: str) -> FoundTexts:
    return FoundTexts(kind="open", encoding="text", most_bytes=8, texts=texts)


def test_found_texts_become_labels_that_devices_can_send() -> None:
    """Texts that no device sends are left out: with spaces at an end, or not in normal form."""
    found = tomllib.loads(
        labels_fragment(_texts('say "x"', " b", "e\u0301", "", "c\u007f"), spell=False)
    )

    assert {"labels": ['say "x"', "c\u007f"]} == found


def test_found_hashes_become_a_task_that_spells(tmp_path: Path) -> None:
    """The command writes it; its length of a code is that of the hashes."""
    fields = dataclasses.asdict(_HASHES) | {"more": 1}
    result, output = tmp_path / "result.json", tmp_path / "spell.toml"
    result.write_text(json.dumps(fields), encoding="utf-8")
    arguments = ["discover-labels", str(result), "--spell", "--output", str(output)]
    outcome = CliRunner().invoke(app, arguments)

    assert 0 == outcome.exit_code, outcome.output
    written = tomllib.loads(output.read_text(encoding="utf-8"))
    assert {"encoding": "spell", "code_bytes": 8, "most_bytes": 255} == written["open"]
    assert ("discover", list(_HASHES.texts)) == (written["protocol"], written["labels"])


@pytest.mark.parametrize(
    ("found", "spell", "rule"),
    [
        (_texts("a"), True, "--spell needs a result of hashes; its encoding is text"),
        (_HASHES, False, "--spell must be set for a result of hashes; its encoding is hash"),
        (_texts(" "), False, "none of the 1 values found can be a label"),
    ],
)
def test_a_result_that_gives_no_labels_is_refused(
    found: FoundTexts, rule: str, *, spell: bool
) -> None:
    """A sentence says why."""
    with pytest.raises(SettingsError, match=rule):
        labels_fragment(found, spell=spell)


@pytest.mark.parametrize("content", ["", "{}", '{"kind": "mean", "encoding": "text", "texts": []}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    """Only JSON results of open dictionaries are read."""
    path = tmp_path / "result.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match="not a JSON result of open data"):
        read_result(path, FoundTexts, "open")
