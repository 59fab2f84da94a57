"""An operator closes a batch early."""

import pytest

from common.errors import BatchStateError
from common.messages.batch import BatchState
from tests.support.shuffler_core import DIGEST, Shuffler


async def test_a_batch_with_enough_users_is_closed_and_delivered(shuffler: Shuffler) -> None:
    """At three of five, long before the deadline; nobody comes in afterwards."""
    await shuffler.submit(3)
    await shuffler.collection.close(DIGEST)
    with pytest.raises(BatchStateError, match="no longer collects"):
        await shuffler.collection.submit(DIGEST, shuffler.envelope())
    await shuffler.deliveries.advance()

    [(manifest, _)] = shuffler.analyzer.delivered
    assert manifest.n_users == 3


async def test_a_wish_to_close_survives_a_crash(shuffler: Shuffler) -> None:
    """It is on the disk before it is acknowledged."""
    await shuffler.submit(3)
    await shuffler.collection.close(DIGEST)
    shuffler.spool.close()
    await shuffler.start()
    await shuffler.deliveries.advance()

    assert await shuffler.state() is BatchState.ERASED


async def test_a_batch_below_n_min_goes_on_collecting(shuffler: Shuffler) -> None:
    """Nothing is lost by asking too early."""
    await shuffler.submit(2)
    with pytest.raises(BatchStateError, match="fewer users than n_min"):
        await shuffler.collection.close(DIGEST)
    await shuffler.submit(1)
    await shuffler.collection.close(DIGEST)

    assert await shuffler.state() is BatchState.CLOSED


async def test_closing_twice_is_closing_once(shuffler: Shuffler) -> None:
    """Also when the batch is long over."""
    await shuffler.submit(3)
    for _ in range(2):
        await shuffler.collection.close(DIGEST)
    await shuffler.deliveries.advance()
    await shuffler.collection.close(DIGEST)

    assert len(shuffler.analyzer.delivered) == 1
