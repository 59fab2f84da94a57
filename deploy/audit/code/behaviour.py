"""
Whether a device behaves alike whatever its value: its calls, its pauses, its lines.

An answer that hides its value is of no use if the device does one thing more for some values than
for others. Devices that have never answered are given one value each, and what they do is noted:
while the shuffler cannot be reached, when they send again, and when they are asked again.
"""

import contextlib
import dataclasses
import io
import logging
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from common.errors import PeerError, ValueRangeError
from common.task.task import Task
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.log_lines import LogLines
from deploy.audit.stand_ins.pauses import Pauses
from deploy.audit.stand_ins.small_device import SmallDevice

_SMALL: Final = 8
"""Values from 0 on that are tried all."""
_OTHERS: Final = 8
"""Values that are drawn."""
_TRIES: Final = 3
"""To send one answer: two of them fail."""
_PERSON: Final = "Zacharias Quandt"
_OUTSIDE: Final = 987_654_321
"""A value of no task here."""
_MONTH: Final = 30 * 24 * 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Seen:
    """What a device did that was given a value."""

    calls: tuple[tuple[str | int, ...], ...]
    pauses: tuple[str, ...]
    lines: tuple[str, ...]
    printed: str
    kept: tuple[tuple[object, ...], ...]


async def behaviour(
    task: Task, device: Callable[[], SmallDevice], rng: np.random.Generator
) -> Finding:
    """
    Give values to devices, and compare what they do.

    Args:
        task: Of which values are answered.
        device: Gives a device that has never answered.
        rng: Draws some of the values.
    """
    checks, last = Checks(), task.domain_size - 1
    drawn = rng.integers(0, task.domain_size, size=_OTHERS).tolist()
    values = sorted({*range(min(_SMALL, task.domain_size)), last // 2, last - 1, last, *drawn})
    await _answered(task, 0, device)  # so that nothing is imported, and told, below
    seen = [await _answered(task, value, device) for value in values]
    first = seen[0]
    checks.must(
        "a device calls the shuffler alike whatever its value",
        all(one.calls == first.calls for one in seen),
    )
    checks.must(
        "a device fetches a task once, and sends one answer until it has arrived",
        [name for name, *_ in first.calls] == ["fetch_task", *["submit"] * _TRIES],
    )
    checks.must("a device waits for no time while it answers", not any(one.pauses for one in seen))
    checks.must(
        "a device logs the same whatever its value", all(one.lines == first.lines for one in seen)
    )
    checks.must("a device prints nothing", not any(one.printed for one in seen))
    checks.must(
        "a device keeps the same whatever its value, but for what is sealed",
        all(one.kept == first.kept for one in seen),
    )
    await _of_a_person(checks, task, device)
    return checks.finding(
        scenario="device-rules",
        title="A device behaves alike whatever its value",
        heading="anonymity",
        coalition="shuffler+analyzer",
        sentence=f"Devices that were given {len(values)} different values made the same calls of "
        "the same lengths, waited for nothing while they answered, logged the same lines and kept "
        "the same rows: while the shuffler could not be reached, when they sent again, and when "
        "they were asked once more. No line named the person, and no error repeated a value that "
        "was refused. How long they compute is not measured.",
        trials=len(values),
        advice="Do not collect with this version: devices tell by what they do what they hold.",
    )


async def _answered(task: Task, value: int, device: Callable[[], SmallDevice]) -> _Seen:
    """Answer in vain, send again, and answer once more, on a device that never answered before."""
    with device() as one:
        with _heard() as (log, printed), Pauses() as pauses:
            one.shuffler.failing = PeerError("nobody is there")
            await one.answers(task, value)
            await one.resends()
            one.shuffler.failing = None
            await one.resends()
            await one.answers(task, value)
        return _Seen(
            calls=tuple(one.shuffler.calls),
            pauses=tuple(pauses.seen),
            lines=tuple(line for _, line in log.lines),
            printed=printed.getvalue(),
            kept=tuple(one.kept()),
        )


@contextlib.contextmanager
def _heard() -> Iterator[tuple[LogLines, io.StringIO]]:
    """Give what is logged, and what is printed, while a block runs."""
    log, printed, disabled = LogLines(), io.StringIO(), logging.root.manager.disable
    logging.disable(logging.NOTSET)
    try:
        with (
            contextlib.redirect_stderr(io.StringIO()),  # where lines are shown
            log.kept(),
            contextlib.redirect_stderr(printed),
            contextlib.redirect_stdout(printed),
        ):
            yield log, printed
    finally:
        logging.disable(disabled)


async def _of_a_person(checks: Checks, task: Task, device: Callable[[], SmallDevice]) -> None:
    """Let a device of several people fail in every way that it tells somebody of."""
    with device() as one, _heard() as (log, printed):
        one.serve(_PERSON)
        told = [await one.fails(task, value) for value in (_OUTSIDE, -_OUTSIDE)]
        one.shuffler.failing = PeerError("nobody is there")
        await one.answers(task)
        await one.resends()
        one.shuffler.failing = None
        await one.resends()
        one.clock.seconds = task.deadline + _MONTH
        await one.watches()
    said = printed.getvalue() + "".join(line for _, line in log.lines)
    checks.must(
        "a device logs what it could not send, and what was not proven",
        all(event in said for event in ("submission not sent", "answer checked")),
    )
    checks.must(
        "no line names a person", not any(name in said for name in (_PERSON, *_PERSON.split()))
    )
    checks.must(
        "a value that is refused stands in no error and no line",
        all(isinstance(error, ValueRangeError) for error in told)
        and not any(str(_OUTSIDE) in text for text in (said, *map(repr, told), *map(str, told))),
    )
