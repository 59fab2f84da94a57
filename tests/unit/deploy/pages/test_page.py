import json

import pytest

from deploy.pages.page import content_policy, embedded_json, render


@pytest.mark.parametrize(
    "text",
    ["</script>", "<!--<script>", "]]>", "&lt;", "\ud800", "\u2028\u2029", 'a"b\\c', "\u202eevil"],
)
def test_any_text_survives_embedding_and_cannot_leave_its_element(text: str) -> None:
    """What comes back is what went in; on the way it is ASCII without < and &."""
    written = str(embedded_json([text]))

    assert [text] == json.loads(written)
    assert written.isascii()
    assert not set("<>&") & set(written)


def test_text_in_a_page_is_escaped() -> None:
    """A title is text, whatever is in it."""
    page = render(
        "releases.html",
        version="<b>",
        title="<i>&",
        entries=(),
        head=_Head,
        alone=0,
        populations=(),
    )

    assert "<i>" not in page
    assert "<b>" not in page
    assert "&lt;i&gt;&amp;" in page


class _Head:
    entry = 0
    entry_hash = bytes(32)


def test_only_the_scripts_that_a_page_was_made_with_may_run() -> None:
    """By hash: not whatever is inline."""
    policy = content_policy("a()", asks_its_server=False)

    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert policy != content_policy("b()", asks_its_server=False)
    assert "connect-src" not in policy


def test_a_page_without_a_script_may_run_none() -> None:
    """What is not allowed falls back to default-src 'none'."""
    assert "script-src" not in content_policy("", asks_its_server=False)


def test_only_a_live_page_may_ask_its_server() -> None:
    """And nobody else."""
    assert "connect-src 'self'" in content_policy("a()", asks_its_server=True)
