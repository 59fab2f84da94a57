"""Other users of the machine cannot see the address of a page."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_ADDRESS: Final = "http://127.0.0.1:1/s3cret/"
_PROGRAM: Final = f"""
from shuffledp.deploy.terminal.console import private_opener
with private_opener() as show:
    assert show("{_ADDRESS}")
"""
_BROWSER: Final = """#!/bin/sh
cd "$(dirname "$0")"
printf %s "$*" > arguments
file=${1#file://}
cp "$file" page
stat -c %a "$file" "$(dirname "$file")" > modes
"""


def test_a_secret_address_is_on_no_command_line(tmp_path: Path) -> None:
    """The browser gets a file that only its owner reads, and that is deleted afterwards."""
    browser = tmp_path / "browser"
    browser.write_text(_BROWSER)
    browser.chmod(0o700)
    subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=os.environ | {"DISPLAY": ":0", "BROWSER": f"{browser} %s"},
        check=True,
        timeout=60,
    )
    opened = (tmp_path / "arguments").read_text()

    assert "s3cret" not in opened
    assert opened.startswith("file:///")
    assert f"url={_ADDRESS}" in (tmp_path / "page").read_text()
    assert ["600", "700"] == (tmp_path / "modes").read_text().split()
    assert not Path(opened.removeprefix("file://")).parent.exists()
