"""The published tasks of a series' rounds, and which of their batches have expired."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from common.errors import PeerError
from common.messages.batch import BatchState, TaskState, TaskSummary
from common.task.task import Task
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient
from deploy.tasks.schedule import Series, SeriesRound
from deploy.tasks.task_view import preview


async def tasks_of(series: Series, analyzer: OperatorClient) -> list[TaskSummary]:
    """Return the published tasks that equal a round in all that the series' template fixes."""
    template, found = preview(series.draft, now=0.0), []
    deadlines = {series.deadline(number) for number in range(1, series.n_rounds + 1)}
    for summary in await analyzer.tasks():
        if summary.population == template.population and summary.deadline in deadlines:
            signed, _ = await analyzer.describe(summary.task_digest)
            task = Task.from_bytes(signed.task_bytes)
            if task.asks_like(replace(template, deadline=task.deadline)):
                found.append(summary)
    return found


async def with_expired(
    rounds: Iterable[SeriesRound], shuffler: ShufflerClient
) -> tuple[SeriesRound, ...]:
    """Return rounds, the overdue ones as expired if the shuffler has no batch to deliver."""
    found = list(rounds)
    with suppress(PeerError):  # while it is away, rounds stay overdue
        for place, each in enumerate(found):
            if each.task is not None and each.state is TaskState.OVERDUE:
                status = await shuffler.status_or_none(each.task.task_digest)
                if status is None or status.state is BatchState.EXPIRED:
                    found[place] = replace(each, state="expired")
    return tuple(found)
