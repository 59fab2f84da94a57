"""A task with several lengths of submissions, from the device to the manifest."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shuffledp.common.crypto.hpke import envelope_context
from shuffledp.common.errors import WireError
from shuffledp.common.messages.batch import BatchState
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import published

_USERS = 200


@pytest.fixture
async def shuffler(tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A shuffler whose users add one or two dummies, with equal chances."""
    case = published(n_min=3, target_size=_USERS, dummies_per_user=1.5)
    started = Shuffler(tmp_path, case=case)
    await started.start()
    yield started
    started.store.close()


async def test_the_manifest_counts_submissions_by_length(shuffler: Shuffler) -> None:
    """Single and bulk calls; no submission is padded; a restart in between changes nothing."""
    task, digest = shuffler.case.task, shuffler.case.signed.digest()
    sent = [shuffler.envelope(user % 5) for user in range(_USERS)]
    for envelope in sent[:20]:
        await shuffler.collection.submit(digest, envelope)
    await shuffler.collection.submit_bulk(digest, sent[20:])
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.batch_state()
    await shuffler.restart()
    shuffler.analyzer.reachable = True
    await shuffler.advance()

    sizes = Counter(map(len, sent))
    assert {*task.envelope_sizes} == {*sizes}
    [(manifest, delivered)] = shuffler.analyzer.delivered
    assert tuple(sizes[size] for size in task.envelope_sizes) == manifest.by_length
    n_reports = 2 * manifest.by_length[0] + 3 * manifest.by_length[1]
    assert n_reports == manifest.n_reports == len(delivered) // task.sealed_report_bytes


async def test_a_submission_of_another_length_is_refused(shuffler: Shuffler) -> None:
    """Neither shorter, longer, nor in between."""
    task, digest = shuffler.case.task, shuffler.case.signed.digest()
    seal = shuffler.case.shuffler_key.public_key().sealer(envelope_context(digest))
    for reports in (0, 1, 4):
        envelope = seal(bytes(16 + reports * task.sealed_report_bytes))
        with pytest.raises(WireError, match="of 2 or 3 reports, has 184 or 244"):
            await shuffler.collection.submit(digest, envelope)
