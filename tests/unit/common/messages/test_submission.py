import pytest

from common.errors import WireError
from common.messages.submission import Submission, unpack
from tests.support.tasks import published

_TASK = published(dummies_per_user=2).task


@pytest.mark.parametrize("reports", [0, 1, 2, 4])
def test_another_number_of_reports_is_refused(reports: int) -> None:
    """A submission of this task holds three reports, and is unpacked as it was packed."""
    content = Submission(submission_id=b"i" * 16, sealed_reports=b"r" * 180)
    assert content == unpack(b"i" * 16 + b"r" * 180, _TASK)
    with pytest.raises(WireError, match="holds 3 reports of 60 bytes"):
        unpack(bytes(16 + 60 * reports), _TASK)
