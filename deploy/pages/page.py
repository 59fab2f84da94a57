"""
The frame of every page: one file that holds its style, its scripts and its data.

A page loads nothing. Its content-security policy allows the page's own script alone, by hash: text
from outside never runs.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from common.messages.guarantee import rounded_up
from common.task.dummy_spec import KEEP_SUM
from deploy.pages import figures
from deploy.terminal.durations import between, duration, moment

_LOADER: Final = PackageLoader("deploy", "pages")
_ENVIRONMENT: Final = Environment(
    loader=_LOADER,
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals |= {"infinity": math.inf, "keep_sum": KEEP_SUM}
_ENVIRONMENT.filters |= {
    each.__name__: each
    for each in (
        *(figures.count, figures.privacy, figures.at_least, figures.seconds, figures.plain),
        *(figures.latex, rounded_up, between, duration, moment),
    )
}


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
    Render a page, to be written as UTF-8.

    Args:
        template: File of this folder that extends base.html.
        version: Of this program; shown at the foot.
        styles: Further style sheets of this folder, after page.css.
        scripts: Scripts of this folder, run as one after the page has been read.
        data: For the scripts, as JSON in the element `page-data`. Its text is untrusted.
        asks_its_server: Let the page ask the server that it came from; others may ask none.
        **fields: Of the template. Text is escaped.
    """
    script = f'(() => {{\n"use strict";\n{_joined(scripts)}\n}})();' if scripts else ""
    return _ENVIRONMENT.get_template(template).render(
        policy=content_policy(script, asks_its_server=asks_its_server),
        style=Markup(_joined(("page.css", *styles))),  # noqa: S704  # own files
        script=Markup(script),  # noqa: S704  # own files
        data=None if data is None else embedded_json(data),
        version=version,
        **fields,
    )


def fragment(template: str, **fields: object) -> str:
    """Render a part of a page for a script to insert. Text is escaped."""
    return _ENVIRONMENT.get_template(template).render(**fields)


def content_policy(script: str, *, asks_its_server: bool) -> str:
    """Return the Content-Security-Policy of a page with this script."""
    allowed = ["default-src 'none'", "style-src 'unsafe-inline'", "img-src data:"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed.append(f"script-src 'sha256-{digest}'")
    if asks_its_server:
        allowed.append("connect-src 'self'")
    return "; ".join((*allowed, "base-uri 'none'", "form-action 'none'"))


def embedded_json(value: object) -> Markup:
    """
    Write JSON that is safe inside a script element, whatever text it holds.

    No < is left that could end the element or begin a comment; all is ASCII, so that even invalid
    Unicode can be written.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  # what is left cannot be read as markup


def _joined(names: Sequence[str]) -> str:
    """Return files of this folder, unchanged, one after the other."""
    return "\n".join(_LOADER.get_source(_ENVIRONMENT, name)[0] for name in names)
