"""The page's files with their headers, as an ASGI application."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

from shuffledp.common.runtime.validation import read_file

CONSTANTS: Final = "constants.js"
"""The module with the pins and limits, which the page's script imports."""
_SCRIPT, _STYLE = "page.js", "style.css"
_PLACE: Final = b"<!-- scripts -->"
"""Where index.html gets its style and scripts."""
_IMPORTED: Final = re.compile(rb'"\./([\w-]+\.js)"')
_TYPES: Final = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self' '{}'; style-src 'self'; connect-src {}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    (b"cache-control", b"no-cache"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
"""Headers of every answer."""
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")


class Answer(NamedTuple):
    """An answer to a request, with the whole body also for HEAD."""

    status: HTTPStatus
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


class Page:
    """
    Serves index.html at / and its style and scripts, by GET and HEAD.

    index.html states the hash of every other file, so its own hash identifies the page. Everything
    else is refused without a body.
    """

    def __init__(
        self,
        bundle: Path,
        constants: Mapping[str, object],
        services: Iterable[str],
        *,
        has_tls: bool = False,
    ) -> None:
        """
        Read the bundle, and write the constants into it.

        `services` are the addresses that the page may call. With TLS, browsers are told not to use
        plaintext for a year.

        Raises SettingsError if a file of the bundle cannot be read.
        """
        self._common = (*_HEADERS, *((_HSTS,) if has_tls else ()))
        files = _files(bundle, f"export const constants = {json.dumps(constants)};\n".encode())
        integrity = {f"/{name}": _integrity(body, "sha384") for name, body in files.items()}
        scripts = {path: known for path, known in integrity.items() if path.endswith(".js")}
        imports = json.dumps({"integrity": scripts}, separators=(",", ":")).encode()
        html = read_file(bundle / "index.html")
        files["index.html"] = html.replace(_PLACE, _head(integrity, imports))
        allowed = _POLICY.format(_integrity(imports, "sha256"), " ".join(services)).encode()
        self._answers = {
            f"/{name}": Answer(
                HTTPStatus.OK,
                (
                    (b"content-type", _TYPES[name.rpartition(".")[2]]),
                    (b"content-security-policy", allowed),
                ),
                body,
            )
            for name, body in files.items()
        }
        self._answers["/"] = self._answers.pop("/index.html")

    def answer(self, method: str, path: str) -> Answer:
        """Answer a request."""
        if path not in self._answers:
            return Answer(HTTPStatus.NOT_FOUND)
        if method not in {"GET", "HEAD"}:
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, ((b"allow", b"GET, HEAD"),))
        return self._answers[path]

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401  # ASGI
        """Serve one request."""
        status, headers, body = self.answer(scope["method"], scope["path"])
        length = (b"content-length", b"%d" % len(body))
        headers = (*self._common, *headers, length)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        shown = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": shown})


def _files(bundle: Path, constants: bytes) -> dict[str, bytes]:
    """Return the style, the page's script, and all scripts that it may import."""
    files = {_STYLE: read_file(bundle / _STYLE), CONSTANTS: constants}
    wanted = [_SCRIPT]
    while wanted:
        name = wanted.pop()
        files[name] = read_file(bundle / name)
        imported = {each.decode() for each in _IMPORTED.findall(files[name])}
        wanted += imported - files.keys()
    return dict(sorted(files.items()))  # the same page at every start


def _integrity(body: bytes, algorithm: str) -> str:
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, body).digest()).decode()}"


def _head(integrity: Mapping[str, str], imports: bytes) -> bytes:
    style, script = (f'"/{name}" integrity="{integrity[f"/{name}"]}"' for name in (_STYLE, _SCRIPT))
    return (
        f'<link rel="stylesheet" href={style}>\n'
        f'<script type="importmap">{imports.decode()}</script>\n'
        f'<script type="module" src={script}></script>'
    ).encode()
