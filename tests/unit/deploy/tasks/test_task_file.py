"""A task's files: what was signed, to the byte, for programs that are not this one."""

import re
import subprocess
from pathlib import Path
from typing import Final

from deploy.tasks.drafts import TASK_FILES, save_task
from tests.support.tasks import PublishedTask, published
from tests.support.tools import tool

_PAGE: Final = Path(__file__).parents[4] / "docs" / "auditors" / "verify-a-task.md"


def _commands() -> str:
    """What the auditors' page tells to type, from the digest on."""
    blocks: list[str] = re.findall(r"(?ms)^```\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"))
    [found] = [block for block in blocks if block.startswith("sha256sum")]
    return found


def _saved(folder: Path) -> PublishedTask:
    task = published(labels=tuple("ü" * n for n in range(1, 101)))
    save_task(folder / "agreed", task.signed)
    identity = task.identity.public_identity().raw.hex()
    (folder / "identity.pub").write_text(identity + "\n", encoding="ascii")
    return task


def _typed(folder: Path) -> subprocess.CompletedProcess[str]:
    tool("openssl")
    shell = [tool("bash"), "-e", "-o", "pipefail", "-c", _commands()]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=False)


def test_an_auditor_verifies_a_saved_task_as_the_page_says(tmp_path: Path) -> None:
    """With openssl alone; a changed byte of the task or of the signature is noticed."""
    _saved(tmp_path)
    task = _saved(tmp_path)  # the later one
    outcome = _typed(tmp_path)

    assert 0 == outcome.returncode, outcome.stderr
    assert task.signed.digest().hex() in outcome.stdout
    assert "Signature Verified Successfully" in outcome.stdout
    for name in TASK_FILES:
        content = (tmp_path / "agreed" / name).read_bytes()
        (tmp_path / "agreed" / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert 0 != _typed(tmp_path).returncode, name
        (tmp_path / "agreed" / name).write_bytes(content)
