"""
Submissions of many simulated people at once.

A device prepares one submission, with `user_agent.contribution`. Here a whole group's reports,
dummies and orders are drawn together, so sealing is nearly all the cost.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from common.mechanisms.base import Mechanism, Reports, null_reports
from common.mechanisms.key_value.pairs import Pairs
from common.messages.submission import Submission, Value, pack
from deploy.simulate.collection import draw_group_dummies
from user_agent.contribution import Contributor


class GroupContributor(Contributor):
    """A contributor that prepares many simulated users' submissions at once."""

    def prepare_group(
        self, values: Sequence[Value], ids: Sequence[bytes], rng: np.random.Generator
    ) -> list[bytes]:
        """
        Prepare an envelope per value and id; raise ValueRangeError if a value does not fit.

        Cost: at most 1.1 times that of sealing each report and envelope.
        """
        if not values:
            return []
        sealed = [self._seal_report(report.tobytes()) for report in self._reports(values, rng).flat]
        each = self._task.reports_per_user
        envelopes = []
        for user, submission_id in enumerate(ids):
            own = b"".join(sealed[user * each : (user + 1) * each])
            submission = Submission(submission_id=submission_id, sealed_reports=own)
            envelopes.append(self._seal_envelope(pack(submission)))
        return envelopes

    def _reports(self, values: Sequence[Value], rng: np.random.Generator) -> Reports:
        """Draw all reports of n > 0 users in sending order, shape (n, reports_per_user)."""
        n_users, each = len(values), self._task.reports_per_user
        own = self._mechanism.randomize(_joined([self._encode(v, rng) for v in values]), rng)
        table = null_reports(n_users * each, own.dtype).reshape(n_users, each).copy()
        table[:, 0] = own
        if each > 1:
            mechanism = cast("Mechanism", self._mechanism)
            counts, dummies = draw_group_dummies(mechanism, self._task.dummies, n_users, rng)
            table[:, 1:][np.arange(each - 1) < counts[:, None]] = dummies
        order = rng.permuted(np.tile(np.arange(each), (n_users, 1)), axis=1)
        found: Reports = np.take_along_axis(table, order, axis=1)
        return found


def _joined(encoded: list[Any]) -> Any:  # noqa: ANN401  # as each kind's mechanism takes values
    """Join single users' encoded values into a group's."""
    if not isinstance(encoded[0], Pairs):
        return np.concatenate(encoded)
    owned = np.cumsum([0, *(len(pairs.keys) for pairs in encoded)])
    return Pairs(
        offsets=owned.astype(np.int64),
        keys=np.concatenate([pairs.keys for pairs in encoded]),
        values=np.concatenate([pairs.values for pairs in encoded]),
    )
