import numpy as np
import pytest

from common.crypto.hpke import report_context
from common.protocols import protocols_of
from common.task.task import Task
from common.task_digest import TaskDigest
from tests.support.protocol_tasks import protocol_task
from tests.support.recording import RecordingContributor, sealed_reports

_DIGEST = TaskDigest(b"\xd1" * 32)
_CONTEXT = report_context(_DIGEST)


def _ends(domain_size: int) -> list[int]:
    """Return the shortest and longest item numbers, and those around a byte's boundary."""
    return sorted({0, 1, domain_size - 1} | {n for n in (127, 128, 255, 256) if n < domain_size})


def _envelopes(task: Task) -> tuple[RecordingContributor, list[bytes]]:
    contributor, rng = RecordingContributor(task, _DIGEST), np.random.default_rng(5)
    values = np.repeat(_ends(task.domain_size), 12)
    return contributor, [contributor.prepare(int(value), rng) for value in values]


@pytest.mark.parametrize("name", protocols_of("categorical"))
def test_every_submission_of_a_protocol_has_one_length(name: str) -> None:
    """For every value and number of dummies."""
    task = protocol_task(name)
    contributor, envelopes = _envelopes(task)

    assert {task.envelope_bytes} == set(map(len, envelopes))
    for submission in contributor.submissions:
        assert task.reports_per_user == len(sealed_reports(submission, task))
