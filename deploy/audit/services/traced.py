"""A device that remembers what it made: the deployed code, with a note of what passes through."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from common.messages.value import Value
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from deploy.audit.stand_ins.watched import Watched
from user_agent.contribution import Answer, Contributor


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedAnswer:
    """One answer, as the device that made it knows it."""

    task_digest: TaskDigest
    value: int
    own: bytes
    """Plaintext of the report that carries the value."""
    n_dummies: int
    """Reports beside it that are no padding."""
    reports: tuple[bytes, ...]
    """Plaintexts, padding too, in the order in which they stand in the submission."""
    sealed: tuple[bytes, ...]
    """The same, sealed to the analyzer."""
    submission_id: bytes
    envelope: bytes

    @property
    def own_place(self) -> int | None:
        """Where the own report stands; None where another one is equal to it."""
        return self.reports.index(self.own) if self.reports.count(self.own) == 1 else None


class TracedContributor(Contributor):
    """Prepares answers as every device does, and tells what went into each."""

    def __init__(
        self,
        task: Task,
        digest: TaskDigest,
        secret: bytes | None = None,
        *,
        told: Callable[[TracedAnswer], None],
    ) -> None:
        super().__init__(task, digest, secret)
        self._digest, self._told = digest, told
        watched = Watched(self._mechanism)
        self._watched, self._mechanism = watched, watched
        self._sealed: list[tuple[bytes, bytes]] = []
        self._packed = b""
        seal_report, seal_envelope = self._seal_report, self._seal_envelope

        def report(plaintext: bytes) -> bytes:
            self._sealed.append((plaintext, seal_report(plaintext)))
            return self._sealed[-1][1]

        def envelope(plaintext: bytes) -> bytes:
            self._packed = plaintext
            return seal_envelope(plaintext)

        self._seal_report = report  # type: ignore[assignment]  # a seal, and a note of it
        self._seal_envelope = envelope  # type: ignore[assignment]  # likewise

    def answer(self, value: Value, rng: np.random.Generator) -> Answer:
        """Prepare one user's answer, and tell of it."""
        self._watched.drawn.clear()
        self._sealed.clear()
        made = super().answer(value, rng)
        reports = tuple(plaintext for plaintext, _ in self._sealed)
        null = b"\xff" * self._task.mechanism.report_bytes
        self._told(
            TracedAnswer(
                task_digest=self._digest,
                value=cast("int", value),  # the play collects items
                own=self._watched.drawn[0][0].tobytes(),
                n_dummies=sum(report != null for report in reports) - 1,
                reports=reports,
                sealed=tuple(sealed for _, sealed in self._sealed),
                submission_id=self._packed[:SUBMISSION_ID_BYTES],
                envelope=made.envelope,
            )
        )
        return made
