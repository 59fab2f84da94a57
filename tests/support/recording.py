"""A device that records its submissions before sealing."""

from typing import Final

from common.crypto.hpke import split_every
from common.messages.submission import Submission, unpack
from common.task.task import Task
from common.task_digest import TaskDigest
from user_agent.contribution import Contributor


class RecordingContributor(Contributor):
    """Prepares submissions, and keeps each envelope's content."""

    def __init__(self, task: Task, digest: TaskDigest) -> None:
        super().__init__(task, digest)
        self.submissions: Final[list[Submission]] = []
        seal = self._seal_envelope

        def recorded(plaintext: bytes) -> bytes:
            self.submissions.append(unpack(plaintext, task))
            return seal(plaintext)

        self._seal_envelope = recorded


def sealed_reports(submission: Submission, task: Task) -> list[bytes]:
    """Return a user's sealed reports one by one."""
    return split_every(submission.sealed_reports, task.sealed_report_bytes)
