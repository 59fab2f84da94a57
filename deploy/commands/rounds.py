"""Publish the rounds of a series, and find their tasks and which batches have expired."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from shuffledp.common.errors import PeerError, PeerRefusalError
from shuffledp.common.messages.batch import BatchState, TaskState, TaskSummary
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.clients.shuffler import ShufflerClient
from shuffledp.deploy.commands import options
from shuffledp.deploy.commands.publication import Publication
from shuffledp.deploy.tasks import forecast as forecasts
from shuffledp.deploy.tasks import population_budgets, task_view
from shuffledp.deploy.tasks.schedule import Series, SeriesRound

_NOT_TO_COME: Final = {BatchState.EXPIRED, BatchState.DROPPED, BatchState.UNCONFIRMED}
"""States of a batch that the shuffler does not send any more, to an analyzer that has none."""


async def tasks_of(series: Series, analyzer: OperatorClient) -> list[TaskSummary]:
    """Return the published tasks that equal a round in all that the series' template fixes."""
    template, found = task_view.preview(series.draft, now=0.0), []
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
                if status is None or status.state in _NOT_TO_COME:
                    found[place] = replace(each, state="expired")
    return tuple(found)


def mark_expired(
    rounds: Iterable[SeriesRound], connections: options.Connections
) -> tuple[SeriesRound, ...]:
    """Ask the shuffler, if its address is known, which overdue rounds have expired."""
    if not connections.knows("shuffler"):
        return tuple(rounds)
    return options.ask(partial(connections.shuffler, operator=False), partial(with_expired, rounds))


async def publish_due(
    series: Series, complete: Callable[[int], TaskDraft], now: float, operator: OperatorClient
) -> tuple[dict[str, Any], Publication | None]:
    """
    Publish the round that is open at `now` unless it has a task; return JSON fields and the task.

    `complete` returns a round's draft with others' keys. Raises BudgetError before the first round
    if the budgets do not last.
    """
    number, state, warning = series.open_round(now), "already published", ""
    rounds, published = await _round_at(series, now, operator)
    if not 0 < number <= series.n_rounds:
        state = "has ended" if number else "has not started"
    elif published is None:
        if not any(each.task for each in rounds):
            task = task_view.preview(series.draft, now=0.0)
            spent = await population_budgets.releases_to(series.draft.population, operator)
            costs, limits = forecasts.forecast(task, rounds, task.n_min, spent)
            forecasts.check_budget(limits, len(costs))
            warning = forecasts.shortfall(limits, len(costs))
        try:
            published = Publication(*await operator.publish_task(complete(number)))
            state = "published"
        except PeerRefusalError:  # another run may have published the round just now
            rounds, published = await _round_at(series, now, operator)
            if published is None:
                raise
    fields = published.as_json() if published else {"task_digest": None}
    missed = [each.number for each in rounds if each.state == "missed"]
    report = {"round": number if published else None, "state": state, **fields, "missed": missed}
    return {**report, "warning": warning}, published


async def _round_at(
    series: Series, now: float, operator: OperatorClient
) -> tuple[tuple[SeriesRound, ...], Publication | None]:
    """Return all rounds, and the published task of the one open at `now`, if it has one."""
    rounds, number = series.rounds(await tasks_of(series, operator), now), series.open_round(now)
    task = next((each.task for each in rounds if each.number == number), None)
    signed = None if task is None else (await operator.describe(task.task_digest))[0]
    return rounds, None if signed is None else Publication(signed, None)
