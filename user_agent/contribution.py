"""
One person's contribution to one task: randomize, add dummies, pad, shuffle, seal. Pure.

The only code that turns a true value into bytes that leave the device; what is tested, simulated
and shipped is this.
"""

from dataclasses import dataclass

import numpy as np

from common.envelope import EnvelopeContent, pack
from common.errors import ValueRangeError
from common.hpke import HpkePublicKey, TaskDigest, envelope_context, report_context
from common.mechanisms.catalogue import mechanism_of
from common.mechanisms.mechanism import Reports, null_reports
from common.task import SUBMISSION_ID_BYTES, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """All sealed reports of one user in one envelope. A retry sends these very bytes."""

    submission_id: bytes
    envelope: bytes


class Contribution:
    """How to answer one task: made once a task, used once a person."""

    def __init__(self, task: Task, digest: TaskDigest) -> None:
        """
        Lay out the task's mechanism and seals.

        Raises:
            TaskError: The task's mechanism is not one that this program knows.
        """
        self._task = task
        self._mechanism = mechanism_of(task)
        self._seal_report = HpkePublicKey(task.analyzer_key).sealer(report_context(digest))
        self._seal_envelope = HpkePublicKey(task.shuffler_key).sealer(envelope_context(digest))

    def prepare(self, value: int, rng: np.random.Generator) -> Submission:
        """
        Prepare one user's submission. Run by the user agent.

        Args:
            value: The true item, 0 .. domain_size-1.
            rng: Source of randomness for reports, dummies, their order and the id.

        Returns:
            A submission whose length depends on the task alone.

        Raises:
            ValueRangeError: The value lies outside the domain; the message does not repeat it.

        Cost: one seal for each report and one for the envelope, about 0.1 ms each.
        """
        if not 0 <= value < self._task.domain_size:
            raise ValueRangeError(f"a value must lie between 0 and {self._task.domain_size - 1}")
        own = self._mechanism.randomize(np.array([value], dtype=np.int64), rng)
        dummies = self._mechanism.dummies(self._task.dummies.per_user, rng)
        reports = pad(np.concatenate([own, dummies]), self._task.reports_per_user)
        reports = reports[rng.permutation(len(reports))]
        content = EnvelopeContent(
            submission_id=rng.bytes(SUBMISSION_ID_BYTES),
            sealed_reports=b"".join(self._seal_report(report.tobytes()) for report in reports),
        )
        return Submission(
            submission_id=content.submission_id, envelope=self._seal_envelope(pack(content))
        )


def pad(reports: Reports, reports_per_user: int) -> Reports:
    """
    Bring a user's reports to the task's fixed number with null reports.

    Every submission has the same number of sealed reports, so that the number of dummies, where
    it is drawn, does not show on the wire.

    Raises:
        ValueError: There are more reports than the task allows.
    """
    missing = reports_per_user - len(reports)
    if missing < 0:
        raise ValueError(f"{len(reports)} reports where a submission holds {reports_per_user}")
    return np.concatenate([reports, null_reports(missing, reports.dtype)])
