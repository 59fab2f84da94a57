"""The visible text of a page, for snapshots."""

import re
from html import unescape

from shuffledp.common.version import VERSION

_ENDS = re.compile(r"</(?:p|tr|h\d|li|div|caption|summary|article|section|dl)>")


def page_text(page: str) -> str:
    """Return a page's text, one line per block, without the version, random keys and digests."""
    body = page[page.index("<body") :]
    body = re.sub(r"(?s)<(script|svg|style)\b.*?</\1>", "", body)
    body = re.sub(r"</t[hd]>|</d[td]>|<code", r" | \g<0>", body)
    text = unescape(re.sub(r"<[^>]+>", "", _ENDS.sub("\n", re.sub(r"\n", " ", body))))
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "…hex…", text)
    lines = (re.sub(r"[ \t]+", " ", line).strip(" |") for line in text.splitlines())
    return of_any_version("\n".join(line for line in lines if line))


def of_any_version(text: str) -> str:
    """Return a page's text as of a fixed version."""
    return text.replace(f"shuffledp {VERSION}", "shuffledp 1.2.3")
