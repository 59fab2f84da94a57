"""The device in TypeScript: its own tests, its bundle, and the packages that build it."""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.node import WEB, install, node
from tests.support.tools import tool

_PACKAGES: Final = {
    "@hpke/chacha20poly1305",
    "@hpke/common",
    "@biomejs/biome",
    "@hpke/core",
    "@types/node",
    "esbuild",
    "typescript",
    "undici-types",
}
"""Packages of npm, apart from the programs for each platform; decision 25 reviews them."""
_PROGRAMS: Final = ("@biomejs/cli-", "@esbuild/", "@typescript/typescript-")


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the tests."""
    install()
    folder = tmp_path_factory.mktemp("tests")
    node("build.mjs", "--tests", folder)
    return folder


def test_the_tests_of_the_device_pass(tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held to tests/vectors, of which many are alike to each ninth, and to the parties."""
    monkeypatch.setenv("SHUFFLEDP_VECTORS_STEP", "9")

    assert "\n# fail 0\n" in node(tests / "tests.mjs")


@pytest.mark.slow
def test_no_message_breaks_the_device(tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzz tests with forty times more messages, and all vectors."""
    monkeypatch.setenv("SHUFFLEDP_FUZZ_ROUNDS", "20000")

    assert "\n# fail 0\n" in node(tests / "tests.mjs")


def test_the_bundle_answers_in_chromium(tests: Path) -> None:
    """Two tabs share one account in IndexedDB, and give one answer."""
    tool("chromium")

    assert "\n# pass 1\n" in node(tests / "browser.mjs")


def test_the_bundle_is_what_the_sources_give(tmp_path: Path) -> None:
    """Byte for byte, so that the committed one is the code that is here."""
    install()
    node("build.mjs", tmp_path / "dist")

    built, committed = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (tmp_path / "dist", WEB / "dist")
    )
    assert built == committed


def test_every_package_was_reviewed_and_the_lock_file_names_no_registry() -> None:
    """Packages come from whatever registry npm is set to, and must have the locked hashes."""
    text = (WEB / "package-lock.json").read_text(encoding="utf-8")
    packages = {
        path.removeprefix("node_modules/"): each
        for path, each in json.loads(text)["packages"].items()
        if path
    }

    assert _PACKAGES == {name for name in packages if not name.startswith(_PROGRAMS)}
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())
    assert ["https://opencollective.com/biome"] == re.findall(r"https?://[^\s\"]*", text)
