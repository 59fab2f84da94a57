"""A user's submission, report by report."""

from common.crypto.hpke import split_every
from common.messages.submission import Submission
from common.task.task import Task


def sealed_reports(submission: Submission, task: Task) -> list[bytes]:
    """Return a user's sealed reports one by one."""
    return split_every(submission.sealed_reports, task.sealed_report_bytes)
