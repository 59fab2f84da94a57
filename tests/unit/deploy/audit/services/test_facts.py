"""What a play must try, and which refusal is meant: nothing else passes for either."""

import pytest

from common.errors import PeerError, PeerRefusalError, ShuffleDpError
from deploy.audit.checks import Checks
from deploy.audit.services.facts import (
    OF_ARRIVALS,
    OF_CALLERS,
    OF_TELLING,
    Fact,
    must_hold,
    of_devices,
)
from deploy.audit.services.refusal import ONE_RELEASE, refused
from tests.support.audited_services import audited_task

_MEANT = "another batch was delivered for this task: one task, one release"


def test_a_fact_that_was_never_recorded_is_missed() -> None:
    """It counts as one that does not hold."""
    checks = Checks()
    must_hold(checks, dict.fromkeys(OF_ARRIVALS[1:], True), OF_ARRIVALS)

    assert [OF_ARRIVALS[0].value] == checks.broken


def test_every_fact_belongs_to_one_row() -> None:
    """Where the task leaves room for all of them."""
    rows = [*OF_ARRIVALS, *OF_TELLING, *OF_CALLERS, *of_devices(audited_task())]

    assert set(Fact) == set(rows)
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (PeerRefusalError("ALREADY_EXISTS", _MEANT), True),
        (PeerRefusalError("ALREADY_EXISTS", "this submission id was used with other bytes"), False),
        (PeerRefusalError("INVALID_ARGUMENT", "0 reports came; 480 were announced"), False),
        (PeerError("the analyzer does not answer (UNAVAILABLE)"), False),
    ],
)
async def test_only_the_refusal_that_is_meant_counts(error: ShuffleDpError, meant: bool) -> None:  # noqa: FBT001  # of the table
    """Of second batches; a peer out of reach refuses nothing."""

    async def call() -> None:
        raise error

    assert meant == await refused(call(), ONE_RELEASE)


async def test_a_call_that_is_served_is_not_refused() -> None:
    """Whatever is meant."""

    async def call() -> None:
        return

    assert not await refused(call(), ONE_RELEASE)
