"""`shuffledp up`: options that cannot work."""

import pytest

from common.errors import UsageError
from tests.support.command_line import shown


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--host", "poll.example"), "over HTTPS only"),
        (("--host", "poll.example", "--certificate", "a.pem"), "needs --certificate and --key"),
        (("--certificate", "a.pem", "--key", "a.key"), "need --host"),
    ],
)
def test_a_host_needs_a_certificate(options: tuple[str, ...], rule: str) -> None:
    """The sentence says why; nothing is started."""
    with pytest.raises(UsageError, match=rule):
        shown("up", *options)
