"""The page's files and headers, and what the publisher refuses."""

import asyncio
import base64
import hashlib
import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.publisher.core import CONSTANTS, Page
from tests.support.source_tree import ROOT

_BUNDLE: Final = ROOT / "user_agent" / "web" / "dist"
_CONSTANTS: Final = {"shuffler": "https://shuffler.example", "local_epsilon_cap": float("inf")}
_MOST_BYTES: Final = 40_000


@pytest.fixture(scope="module")
def page() -> Page:
    """The page of two services."""
    services = ["https://shuffler.example", "https://issuer.example:8443"]
    return Page(_BUNDLE, _CONSTANTS, services)


def _sha(body: bytes, algorithm: str) -> str:
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, body).digest()).decode()}"


def test_the_page_may_load_its_own_scripts_and_call_its_services_alone(page: Page) -> None:
    """No script may be put into the page, or be made of text; nothing else may show the page."""
    status, headers, body = page.answer("GET", "/")
    [imports] = re.findall(rb'<script type="importmap">(.*?)</script>', body)

    assert HTTPStatus.OK == status
    assert dict(headers) == {
        b"content-type": b"text/html; charset=utf-8",
        b"content-security-policy": (
            "default-src 'none'; "
            f"script-src 'self' '{_sha(imports, 'sha256')}'; "
            "style-src 'self'; "
            "connect-src https://shuffler.example https://issuer.example:8443; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        ).encode(),
    }


def test_index_html_states_the_hash_of_every_file(page: Page) -> None:
    """The hash of index.html identifies the whole page, with its constants."""
    text = page.answer("GET", "/").body.decode()
    [imports] = re.findall(r'<script type="importmap">(.*?)</script>', text)
    tags = dict(re.findall(r'(?:href|src)="(/[^"]+)" integrity="([^"]+)"', text))
    scripts = json.loads(imports)["integrity"]

    assert {"/style.css", "/page.js"} == tags.keys()
    assert sorted(scripts) == list(scripts)  # one hash at every start
    assert f"/{CONSTANTS}" in scripts
    assert all(path in tags or path in scripts for path in re.findall(r'="(/[^"]+)"', text))
    for path, integrity in (tags | scripts).items():
        body = page.answer("GET", path).body
        assert _sha(body, "sha384") == integrity
        for imported in re.findall(rb'(?:from|import|import\()"\./([^"]+)"', body):
            assert f"/{imported.decode()}" in scripts


def test_the_constants_are_a_script(page: Page) -> None:
    """Infinity is a number there."""
    body = page.answer("GET", f"/{CONSTANTS}").body

    assert (
        b'export const constants = {"shuffler": "https://shuffler.example", '
        b'"local_epsilon_cap": Infinity};\n'
    ) == body


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", 200),
        ("GET", "/index.html", 404),
        ("GET", "/node.js", 404),
        ("GET", "/../server.py", 404),
        ("GET", "//", 404),
        ("POST", "/nothing", 404),
        ("POST", "/", 405),
        ("OPTIONS", "/page.js", 405),
    ],
)
def test_everything_else_is_refused_without_a_word(
    page: Page, method: str, path: str, expected: int
) -> None:
    """A refusal has no body."""
    answer = page.answer(method, path)

    assert expected == answer.status
    assert (expected == 200) == bool(answer.body)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_answer_has_its_length_and_is_not_read_by_other_origins(page: Page, method: str) -> None:
    """HEAD has GET's headers."""
    body = page.answer("GET", "/").body
    start, sent = _serve(page, method)

    headers = dict(start["headers"])
    assert (200, b"%d" % len(body)) == (start["status"], headers[b"content-length"])
    assert (b"no-referrer", b"nosniff", b"same-origin", b"no-cache") == tuple(
        headers[name]
        for name in (
            *(b"referrer-policy", b"x-content-type-options"),
            *(b"cross-origin-opener-policy", b"cache-control"),
        )
    )
    assert b"set-cookie" not in headers
    assert (b"" if method == "HEAD" else body) == sent["body"]


def _serve(page: Page, method: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/"}
    asyncio.run(page(scope, None, send))
    return sent


def test_the_page_with_its_words_is_small() -> None:
    """It has at most 40 kB beside the device's core, which has a limit of its own."""
    words = re.findall(r'"\./([^"]+)"', (_BUNDLE / "messages.js").read_text(encoding="utf-8"))
    files = ("page.js", "style.css", "index.html", *words)

    assert _MOST_BYTES >= sum((_BUNDLE / name).stat().st_size for name in files)


def test_a_bundle_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The publisher does not start without it."""
    with pytest.raises(SettingsError, match=r"style\.css cannot be read: No such file"):
        Page(tmp_path, {}, [])
