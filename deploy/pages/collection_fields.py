"""What the page of a result says of its collection, whatever kind of value was collected."""

from typing import Any, Final

from common.messages.guarantee import claimed
from common.messages.result import RefusalCause, Result
from common.task.task import Task
from deploy.pages import figures
from deploy.pages.citation import bibtex, citation, title_of
from deploy.pages.collection_story import story
from deploy.pages.parameters import parameter_groups
from deploy.pages.promises import neighbours_in_words, promises
from deploy.tasks.guarantee_table import CLAIM_ROOM_IN_WORDS

_CAUSES: Final[tuple[tuple[RefusalCause, str, str], ...]] = (
    (
        "repeated",
        "Repeated",
        "the very same sealed report came a second time, and was counted once",
    ),
    (
        "unreadable",
        "Unreadable",
        "it did not open: it was sealed to another key or for another task, or damaged on its way",
    ),
    (
        "malformed",
        "Malformed",
        "it opened, to something that no device which follows this task can have made",
    ),
)


def collection_fields(result: Result, task: Task | None, *, version: str) -> dict[str, Any]:
    """
    Give the fields of the template that no estimate has a part in.

    Args:
        result: What was released.
        task: Under which it was collected; None if it is not at hand.
        version: Of this program.
    """
    told = promises(result.guarantees)
    return {
        "version": version,
        "title": f"{title_of(result, task)} from {result.n_users:,} users",
        "result": result,
        "task": task,
        "digest": result.task_digest.hex(),
        "story": story(result, task),
        "promises": told,
        "main": next(promise for promise in told if promise.charged),
        "pooled": next((p for p in told if p.coalition == "shuffler+analyzer"), None),
        "neighbouring": neighbours_in_words(claimed(result.guarantees).neighbouring),
        "causes": [(name, result.refused.get(cause, 0), why) for cause, name, why in _CAUSES],
        "n_refused": sum(result.refused.values()),
        "parameters": parameter_groups(task) if task else (),
        "claim_room": CLAIM_ROOM_IN_WORDS if _has_room(task) else "",
        "open_seconds": figures.seconds(result.open_seconds),
        "estimate_seconds": figures.seconds(result.estimate_seconds),
        "citation": citation(result, task, version=version),
        "bibtex": bibtex(result, task, version=version),
    }


def _has_room(task: Task | None) -> bool:
    """Say whether a task's claim is more than what is computed."""
    return task is not None and task.central_epsilon < task.local_epsilon
