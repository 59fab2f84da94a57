"""
The frame of every page: one file that holds its style, its scripts and its data.

A page loads nothing, from nowhere, and its policy lets the browser run no script but the page's
own, which it knows by their hash: text from outside that came to stand in the page as a script
would not run.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from deploy.pages import figures

_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("deploy", "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["count"] = figures.count
_ENVIRONMENT.filters["privacy"] = figures.privacy
_ENVIRONMENT.filters["remaining"] = figures.remaining


def render(
    template: str,
    *,
    version: str,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    asks_its_server: bool = False,
    **fields: object,
) -> str:
    """
    Make a page.

    Args:
        template: File of this folder that extends base.html.
        version: Of this program; shown at the foot.
        styles: Further style sheets of this folder, after page.css.
        scripts: Scripts of this folder, run as one after the page has been read.
        data: What the scripts show, as JSON; they find it in the element `page-data`. Its text
            may be anybody's.
        asks_its_server: Let the page ask the server that it came from. Every other may ask nobody.
        **fields: What the template shows. Text is escaped.

    Returns:
        The page, to be written as UTF-8.
    """
    script = _as_one(scripts)
    return _ENVIRONMENT.get_template(template).render(
        policy=content_policy(script, asks_its_server=asks_its_server),
        style=Markup("\n".join(map(_source, ("page.css", *styles)))),  # noqa: S704  # own files
        script=Markup(script),  # noqa: S704  # own files
        data=None if data is None else embedded_json(data),
        version=version,
        **fields,
    )


def content_policy(script: str, *, asks_its_server: bool) -> str:
    """Say what the browser may do for a page with this script, as a Content-Security-Policy."""
    allowed = ["default-src 'none'", "style-src 'unsafe-inline'", "img-src data:"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed.append(f"script-src 'sha256-{digest}'")
    if asks_its_server:
        allowed.append("connect-src 'self'")
    return "; ".join((*allowed, "base-uri 'none'", "form-action 'none'"))


def embedded_json(value: object) -> Markup:
    """
    Write JSON that may stand in a script element, whatever text is in it.

    No text can end the element or begin a comment, since no < is left; all is ASCII, so that even
    text that is not valid Unicode can be written.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  # what is left cannot be read as markup


def _as_one(scripts: Sequence[str]) -> str:
    """Join scripts into one that leaves no names behind."""
    if not scripts:
        return ""
    return '(() => {\n"use strict";\n' + "\n".join(map(_source, scripts)) + "\n})();"


def _source(name: str) -> str:
    """Give a file of this folder as it is, not as a template."""
    loader = _ENVIRONMENT.loader
    assert loader is not None  # noqa: S101  # set above
    return loader.get_source(_ENVIRONMENT, name)[0]
