"""Render self-contained pages. Their security policy allows only their own script, by hash."""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from numpy.typing import NDArray

from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task.shuffler_spec import KEEP_SUM
from shuffledp.common.task.task import listed
from shuffledp.common.version import VERSION
from shuffledp.deploy.pages import figures
from shuffledp.deploy.terminal.durations import format_duration, format_range, format_time

_LOADER: Final = PackageLoader(__package__, "")
_ENVIRONMENT: Final = Environment(
    loader=_LOADER, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_ENVIRONMENT.globals |= {"infinity": math.inf, "keep_sum": KEEP_SUM, "version": VERSION}
_ENVIRONMENT.filters |= {
    "at_least": figures.format_lower_bound,
    "format_duration": format_duration,
    "format_range": format_range,
    "format_time": format_time,
    "count": "{:,}".format,
    "latex": figures.escape_latex,
    "listed": listed,
    "odds": figures.format_odds,
    "plain": figures.format_parameter,
    "privacy": figures.format_privacy,
    "probability": figures.format_probability,
    "rounded_up": rounded_up,
    "scientific": figures.format_scientific,
    "seconds": figures.format_seconds,
}


def render(
    template: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    polls_server: bool = False,
    **fields: object,
) -> str:
    """
    Render a page from a template that extends base.html, with `fields` as escaped variables.

    Style sheets follow page.css; scripts run as one after the page is parsed. `data` for the
    scripts may hold untrusted text. With `polls_server`, requests to the page's own server are
    allowed; all others are forbidden.
    """
    script = f'(() => {{\n"use strict";\n{_joined(scripts)}\n}})();' if scripts else ""
    return _ENVIRONMENT.get_template(template).render(
        policy=content_policy(script, polls_server=polls_server),
        style=Markup(_joined(("page.css", *styles))),  # noqa: S704  # without untrusted text
        script=Markup(script),  # noqa: S704  # without untrusted text
        data=None if data is None else embedded_json(data),
        **fields,
    )


def fragment(template: str, **fields: object) -> str:
    """Render a part of a page, for a script to insert. Text is escaped."""
    return _ENVIRONMENT.get_template(template).render(**fields)


def macros(template: str) -> Any:  # noqa: ANN401  # a module of macros
    """Return the macros of a template, as functions of a module."""
    return _ENVIRONMENT.get_template(template).module


def content_policy(script: str, *, polls_server: bool) -> str:
    """Return the Content-Security-Policy of a page with this script, which may be empty."""
    allowed = ["default-src 'none'", "style-src 'unsafe-inline'", "img-src data:"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed.append(f"script-src 'sha256-{digest}'")
    if polls_server:
        allowed.append("connect-src 'self'")
    return "; ".join((*allowed, "base-uri 'none'", "form-action 'none'"))


embedded_json: Final = partial(htmlsafe_json_dumps, separators=(",", ":"), allow_nan=False)
"""Serialize to ASCII JSON that is safe inside a script element: it has no `<`, `>` and `&`."""


def packed(numbers: NDArray[Any], dtype: str) -> str:
    """Encode numbers for a script as base64, a third as long as decimal digits."""
    return base64.b64encode(np.ascontiguousarray(numbers, dtype=dtype).tobytes()).decode()


def _joined(names: Sequence[str]) -> str:
    return "\n".join(_LOADER.get_source(_ENVIRONMENT, name)[0] for name in names)
