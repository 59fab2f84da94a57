"""Invitations to the publisher's page."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from shuffledp.common.errors import UsageError
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.issuer import BROWSER_PROTOCOLS, invitation, is_for_browsers
from tests.support.source_tree import ROOT
from tests.support.tables import table
from tests.support.vectors import vectors
from tests.vectors.transcript_cases import ALL, CASES

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


@table("name", ALL)
def test_a_task_is_for_browsers_if_the_device_in_typescript_answers_it(name: str) -> None:
    """Its transcripts are of both devices, or of the Python one alone."""
    task = Task.from_bytes(vectors(f"transcript-{name}")["task"].encode())

    assert (name in CASES) == is_for_browsers(task)


def test_browsers_answer_the_protocols_of_the_device_in_typescript() -> None:
    """Its table has the same rows."""
    table = (ROOT / "user_agent/web/src/task/protocols.ts").read_text(encoding="utf-8")

    assert set(re.findall(r'\["([a-z0-9-]+)", row\(', table)) == BROWSER_PROTOCOLS
