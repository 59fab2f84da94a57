"""No line of a log tells of a submission: its time would be that of the line."""

import logging
from pathlib import Path

import pytest

from common.crypto.signing import TOKEN_BYTES, TokenIssuer
from common.errors import ShuffleDpError
from shuffler.servicer import ConnectionCount
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


async def test_a_submission_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Stored, repeated or refused, alone and in bulk; nor is a request for a proof."""
    caplog.set_level(logging.DEBUG)
    issuer = TokenIssuer(TokenIssuer.generate())
    shuffler = Shuffler(tmp_path, token_identity=issuer.identity())
    await shuffler.start()
    await shuffler.collection.fetch_task(DIGEST)
    caplog.clear()
    token, envelope = issuer.issue(), shuffler.envelope()
    refused = 0
    for sent, shown in (
        (envelope, token),
        (envelope, token),
        (shuffler.envelope(), token),
        (shuffler.envelope(), bytes(TOKEN_BYTES)),
        (shuffler.envelope(), b""),
        (envelope[:-1], issuer.issue()),
        (bytes([envelope[0] ^ 1]) + envelope[1:], issuer.issue()),
    ):
        await shuffler.collection.submit_bulk(DIGEST, [sent], [shown])
        try:
            await shuffler.collection.submit(DIGEST, sent, shown)
        except ShuffleDpError:
            refused += 1
    shuffler.clock.seconds = float(CASE.task.deadline)
    with pytest.raises(ShuffleDpError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), issuer.issue())
    for prefix in (None, 2**20):
        with pytest.raises(ShuffleDpError):
            await shuffler.inclusions.relay(DIGEST, prefix)
    with pytest.raises(ShuffleDpError):
        ConnectionCount(2).take("ipv4:192.0.2.1:1", 3)
    shuffler.spool.close()

    assert 5 == refused
    assert [] == caplog.records
