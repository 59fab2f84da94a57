import json

import pytest

from shuffledp.deploy.pages.page import content_policy, embedded_json


@pytest.mark.parametrize(
    "text",
    ["</script>", "<!--<script>", "]]>", "&lt;", "\ud800", "\u2028\u2029", 'a"b\\c', "\u202eevil"],
)
def test_embedded_text_is_read_back_and_cannot_leave_its_element(text: str) -> None:
    """The text is ASCII without < and &."""
    written = str(embedded_json([text]))

    assert [text] == json.loads(written)
    assert written.isascii()
    assert not set("<>&") & set(written)


def test_a_policy_allows_only_the_pages_own_scripts_and_server() -> None:
    """Scripts by hash; only a live page has a server, and everything else is forbidden."""
    policy = content_policy("a()", polls_server=False)

    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert policy != content_policy("b()", polls_server=False)
    assert "connect-src" not in policy
    assert "connect-src 'self'" in content_policy("a()", polls_server=True)
    assert "script-src" not in content_policy("", polls_server=False)
