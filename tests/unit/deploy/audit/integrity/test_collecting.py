"""Rows on what the shuffler takes: honest code passes; faults that no rehearsal plants do not."""

import hashlib
from typing import Any

import numpy as np
import pytest

import shuffler.storage.deduplication
from common.messages.batch import BatchState
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding
from deploy.audit.integrity.scenarios import SCENARIOS
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.storage.batch_key import BatchKey
from shuffler.storage.spool import Spool
from tests.support.protocol_tasks import protocol_task

_PLAYS = {scenario.name: scenario.play for scenario in SCENARIOS}
_OURS = ("bulk-clients", "thresholds", "restarts")

pytestmark = pytest.mark.slow


def _rows(scenario: str, protocol: str = "mixdump") -> tuple[Finding, ...]:
    task = protocol_task(protocol)
    audited = Audited(task_bytes=task.to_bytes(), n_users=20_000)
    return _PLAYS[scenario](audited, np.random.default_rng(5)).findings


def _said(scenario: str) -> str:
    """What the rows that are broken say."""
    return " ".join(one.sentence for one in _rows(scenario) if one.verdict == "broken")


@pytest.mark.parametrize("protocol", ["mixdump", "sageo", "ldp-sw"])
@pytest.mark.parametrize("scenario", _OURS)
def test_honest_code_holds(scenario: str, protocol: str) -> None:
    """With dummies of users, of the shuffler, and without any."""
    assert {"holds"} == {one.verdict for one in _rows(scenario, protocol)}


def test_tokens_that_are_hashed_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the disk sees which submissions to two tasks are one person's."""
    honest: Any = BatchKey.tag

    def other(self: BatchKey, content: bytes) -> bytes:
        found: bytes = honest(self, content)
        token = bytes(content[:5]) == b"token"
        return hashlib.blake2b(content, digest_size=16).digest() if token else found

    monkeypatch.setattr(BatchKey, "tag", other)

    assert "one token for two tasks does not tell that it is one" in _said("bulk-clients")


def test_submissions_that_are_compared_with_their_own_group_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that stands in the shares of two workers counts twice."""
    honest: Any = shuffler.storage.deduplication._compared

    def other(tags: bytes, known: dict[bytes, bytes], *rest: Any, **named: Any) -> Any:
        return honest(tags, dict(known), *rest, **named)

    monkeypatch.setattr(shuffler.storage.deduplication, "_compared", other)

    assert "what stands several times in one call counts once" in _said("bulk-clients")


def test_outcomes_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are told of each other's submissions."""
    honest: Any = Collection._take_bulk

    async def other(*arguments: Any) -> Any:
        return (await honest(*arguments))[::-1]

    monkeypatch.setattr(Collection, "_take_bulk", other)

    assert "each is told what became of it, in order" in _said("bulk-clients")


def test_a_batch_that_is_called_delivered_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash would erase what the analyzer never had."""
    honest: Any = Deliveries._deliver

    async def other(self: Deliveries, stored: Any, found: Any) -> Any:
        await self._spool.set_state(stored, BatchState.DELIVERED)
        return await honest(self, stored, found)

    monkeypatch.setattr(Deliveries, "_deliver", other)

    assert "before that nothing says that it is delivered" in _said("restarts")


def test_a_batch_that_expired_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over, and its submissions lie on the disk."""
    honest: Any = Spool.drop

    async def other(self: Spool, batch: Any, state: BatchState) -> None:
        if state is BatchState.EXPIRED:
            await self.set_state(batch, state)
        else:
            await honest(self, batch, state)

    monkeypatch.setattr(Spool, "drop", other)

    assert "nothing of a batch that expired is kept" in _said("restarts")
