"""Files of a signed task, to verify without this program."""

import subprocess
from pathlib import Path
from typing import Final

from shuffledp.deploy.tasks.drafts import TASK_FILES, save_task
from tests.support.commands import ROOT, blocks
from tests.support.tasks import published
from tests.support.tools import tool

_PAGE: Final = ROOT / "docs" / "auditors" / "verify-a-task.md"


def _typed(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands of the auditors' page, from the digest on."""
    tool("openssl")
    [commands] = [block for block in blocks(_PAGE) if block.startswith("sha256sum")]
    shell = [tool("bash"), "-e", "-o", "pipefail", "-c", commands]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=False)


def test_an_auditor_verifies_a_saved_task_as_the_page_says(tmp_path: Path) -> None:
    """The command openssl suffices; any changed byte of the task or its signature is detected."""
    task = published(labels=tuple("ü" * n for n in range(1, 101)))
    for one in (published(), task):  # the later one counts
        save_task(tmp_path / "agreed", one.signed)
    identity = task.identity.public_identity().raw.hex()
    (tmp_path / "identity.pub").write_text(identity + "\n", encoding="ascii")
    outcome = _typed(tmp_path)

    assert 0 == outcome.returncode, outcome.stderr
    assert task.signed.digest().hex() in outcome.stdout
    assert "Signature Verified Successfully" in outcome.stdout
    for name in TASK_FILES:
        content = (tmp_path / "agreed" / name).read_bytes()
        (tmp_path / "agreed" / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert 0 != _typed(tmp_path).returncode, name
        (tmp_path / "agreed" / name).write_bytes(content)
