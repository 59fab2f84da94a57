"""
The fixed-length plaintext inside a submission's envelope: submission id ‖ sealed reports.

Fixed-length binary, because a protocol buffer inside a ciphertext would leak its content by its
length. The user agent packs, the shuffler unpacks.
"""

from dataclasses import dataclass

from common.errors import WireError
from common.task import SUBMISSION_ID_BYTES, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeContent:
    """All sealed reports of one user, under an id that makes a retry recognisable."""

    submission_id: bytes
    sealed_reports: bytes
    """The task's reports_per_user sealed reports, one after the other."""


def pack(content: EnvelopeContent) -> bytes:
    """Lay a submission out as an envelope's plaintext."""
    return content.submission_id + content.sealed_reports


def unpack(plaintext: bytes, task: Task) -> EnvelopeContent:
    """
    Take an envelope's plaintext apart. Run by the shuffler.

    Raises:
        WireError: It does not hold an id and exactly the task's number of sealed reports.
    """
    room = len(plaintext) - SUBMISSION_ID_BYTES
    expected = task.reports_per_user * task.sealed_report_bytes
    if room != expected:
        raise WireError(
            f"the envelope holds {max(room, 0)} bytes of sealed reports; a submission of this task "
            f"holds {task.reports_per_user} reports of {task.sealed_report_bytes} bytes"
        )
    return EnvelopeContent(
        submission_id=plaintext[:SUBMISSION_ID_BYTES],
        sealed_reports=plaintext[SUBMISSION_ID_BYTES:],
    )
