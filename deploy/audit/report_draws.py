"""Reports on one value, drawn by the deployed code, for every kind of value."""

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np

from common.mechanisms.base import Reports
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.rappor.rappor import Rappor
from common.mechanisms.registry import randomizer_of
from common.messages.value import Value
from common.task.specs import RapporSpec, spec_as
from common.task.task import Task
from deploy.audit.laws.kind_values import worst_values
from deploy.audit.subject import AuditSubject
from user_agent.encoding import encoder_for

Draw = Callable[[Task, Value, int, np.random.Generator], Reports]
"""Draws the reports of so many users who all hold one value."""

_SECRET_BYTES: Final = 32
_AT_ONCE: Final = 2_000_000
"""Numbers, keys or items of users whose reports are drawn together."""
_OTHERS: Final = 5
_GAMES_EACH: Final = 30
"""Trials of a cheap game for each report that is drawn here."""
_LEAST: Final = 80_000
_GAMES_EACH_TEXT: Final = 1000
_LEAST_TEXTS: Final = 24_000
"""Permanent responses take ten microseconds each."""


def reports_each(subject: AuditSubject) -> int:
    """Return how many reports on each value are drawn, for texts, numbers and pairs."""
    if subject.task.kind != "string":
        return max(_LEAST, subject.sizes.games // _GAMES_EACH)
    hashes = spec_as(subject.task.mechanism, RapporSpec).hashes
    return max(_LEAST_TEXTS, subject.sizes.games // _GAMES_EACH_TEXT) // hashes


def draw_reports(task: Task, value: Value, count: int, rng: np.random.Generator) -> Reports:
    """Draw reports as devices do."""
    randomizer = randomizer_of(task)
    if task.kind == "string":
        # Each user has a secret and so a permanent response of their own.
        secrets = [rng.bytes(_SECRET_BYTES) for _ in range(count)]
        responses = cast("Rappor", randomizer).permanent([str(value)] * count, secrets)
        return randomizer.randomize(responses, rng)
    laid_out = encoder_for(task, None)(value, rng)
    # Reports on one item are longer than their layout: a bit for each item of the task.
    together = max(1, _AT_ONCE // max(8, task.domain_size, randomizer.report_dtype.itemsize))
    parts = [min(together, count - start) for start in range(0, count, together)]
    return np.concatenate([randomizer.randomize(_repeat(laid_out, part), rng) for part in parts])


def draw_for_others(task: Task, value: Value, count: int, rng: np.random.Generator) -> Reports:
    """Draw reports of devices of which one in five answers with another value than its user's."""
    other = next(one for pair in worst_values(task) for one in pair if one != value)
    wrong = count // _OTHERS
    return rng.permutation(
        np.concatenate(
            [draw_reports(task, value, count - wrong, rng), draw_reports(task, other, wrong, rng)]
        )
    )


def _repeat(laid_out: Any, count: int) -> Any:  # noqa: ANN401  # as the mechanism takes it
    if not isinstance(laid_out, Pairs):
        return np.repeat(laid_out, count, axis=0)
    return Pairs(
        offsets=np.arange(count + 1, dtype=np.int64) * len(laid_out.keys),
        keys=np.tile(laid_out.keys, count),
        values=np.tile(laid_out.values, count),
    )
