"""Answers to single submissions are classified as the shuffler counts them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shuffledp.common.crypto.hpke import envelope_context
from shuffledp.common.errors import PeerRefusalError, ShuffleDpError, UnknownKeyError
from shuffledp.common.messages.submission import Outcome
from shuffledp.deploy.load.sender import outcome_of
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import published
from tests.support.tokens import TOKENS, new_token

CASE = published(n_min=3, target_size=5, tokens=TOKENS)
DIGEST = CASE.signed.digest()


@pytest.fixture
async def shuffler(tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A shuffler that asks for tokens, with a submission in its batch."""
    started = Shuffler(tmp_path, case=CASE)
    await started.start()
    yield started
    started.store.close()


def _outcome(error: ShuffleDpError) -> Outcome | None:
    """Classify an error that comes over the wire."""
    return outcome_of(PeerRefusalError(error.status, str(error)))


async def test_each_refusal_is_taken_for_what_the_shuffler_counts(shuffler: Shuffler) -> None:
    """Single calls have the causes of a bulk call, at the deadline and after the batch too."""

    async def refused(envelope: bytes, token: bytes) -> Outcome | None:
        with pytest.raises(ShuffleDpError) as caught:
            await shuffler.collection.submit(DIGEST, envelope, token)
        return _outcome(caught.value)

    envelope, token = shuffler.envelope(), new_token(DIGEST)
    await shuffler.collection.submit(DIGEST, envelope, token)
    inner = CASE.shuffler_key.open(envelope, envelope_context(DIGEST))
    other = inner[:16] + bytes(len(inner) - 16)
    forged = CASE.shuffler_key.public_key().sealer(envelope_context(DIGEST))(other)
    outcomes = [
        await refused(forged, new_token(DIGEST)),
        await refused(shuffler.envelope(), token),
        await refused(shuffler.envelope(), b""),
        await refused(envelope + b"x", new_token(DIGEST)),
    ]
    batch_id = (await shuffler.store.get(DIGEST)).batch_id
    shuffler.clock.seconds = float(CASE.task.deadline)
    outcomes.append(await refused(shuffler.envelope(), new_token(DIGEST)))
    counted = shuffler.refusals.of(batch_id)
    await shuffler.advance()
    late = await refused(shuffler.envelope(), new_token(DIGEST))

    causes = ("conflict", "token used", "unauthenticated", "malformed", "closed")
    expected = [Outcome(cause) for cause in causes]
    assert expected == outcomes
    assert dict.fromkeys(expected, 1) == counted
    assert Outcome.CLOSED is late


def test_a_refusal_of_another_kind_is_taken_for_none_of_them() -> None:
    """The status is that of a closed batch, but the refusal is reported by its sentence."""
    assert _outcome(UnknownKeyError("the task's shuffler_key is not a key of this party")) is None
