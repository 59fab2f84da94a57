"""Invitations to the publisher's page."""

from urllib.parse import parse_qs, urlsplit

import pytest

from common.errors import UsageError
from common.task_digest import TaskDigest
from deploy.tasks.invitations import invitation

_DIGEST = TaskDigest(b"\xab" * 32)


@pytest.mark.parametrize(
    ("credential", "text"),
    [(b"\x01" * 32, "01" * 32), (b"header.a-b_c.sign+/=&#", "header.a-b_c.sign+/=&#")],
)
def test_an_invitation_holds_task_and_credential_in_its_fragment(
    credential: bytes, text: str
) -> None:
    """Nothing of it is in what a browser sends."""
    url = urlsplit(invitation("https://poll.example:8443/", _DIGEST, credential))

    assert ("https://poll.example:8443/", "") == (
        f"{url.scheme}://{url.netloc}{url.path}",
        url.query,
    )
    assert {"task": ["ab" * 32], "credential": [text]} == parse_qs(url.fragment)


@pytest.mark.parametrize(
    "page", ["poll.example", "ftp://poll.example/", "https://", "https://a/?b", "https://a/#b"]
)
def test_an_address_that_is_no_page_is_refused(page: str) -> None:
    """It must be http or https, without a query and a fragment."""
    with pytest.raises(UsageError, match="the page's address must be"):
        invitation(page, _DIGEST, b"x")
