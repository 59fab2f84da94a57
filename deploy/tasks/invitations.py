"""Invitations: addresses of the publisher's page, each with a task and a person's credential."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from common.errors import UsageError
from common.task.task import Task
from common.task_digest import TaskDigest
from user_agent.credentials import SECRET_BYTES

BROWSER_PROTOCOLS: Final = frozenset(
    (
        *("ldp-warner", "ldp-grr", "ldp-sue", "ldp-oue", "ldp-blh", "ldp-olh", "sh", "murs"),
        *("hp-sdp", "ddps", "aue", "puredump", "hierarchy", "mixdump", "od-hp", "fe1", "sbin"),
        *("sageo", "hybrid", "digits", "geo-digits", "vector-digits", "geo-vector-digits"),
        *("tables", "geo-tables"),
    )
)
"""What the device in TypeScript answers: user_agent/web/src/task/protocols.ts."""


def invitation(page: str, digest: TaskDigest, credential: bytes) -> str:
    """
    Return the address with which a person takes part, by a secret or an ID token.

    The fragment, which browsers send to nobody, has both. Raises UsageError unless the page is at
    an http or https address.
    """
    parts = urlsplit(page)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        raise UsageError("the page's address must be https://HOST/ or http://HOST:PORT/")
    secret = len(credential) == SECRET_BYTES
    fields = {"task": digest.hex(), "credential": credential.hex() if secret else credential}
    return f"{page.rstrip('/')}/#{urlencode(fields)}"


def lines(invited: Mapping[str, str]) -> str:
    """Return lines NAME ADDRESS; the address alone for an empty name."""
    return "".join(f"{name} {address}".lstrip() + "\n" for name, address in invited.items())


def is_for_browsers(task: Task) -> bool:
    """Return whether the device in TypeScript can answer a task."""
    return task.protocol in BROWSER_PROTOCOLS
