"""Published tasks with some fields changed, also those that stand in a task's lists."""

from dataclasses import replace
from typing import Any

from shuffledp.audit.harness.tasks import with_shufflers
from shuffledp.common.task.task import Task


def changed(task: Task, **changes: Any) -> Task:
    """
    Replace fields of a task.

    `domain_size` is that of its last view and `dummies` are of all views; `shuffler`,
    `shuffler_key` and `shuffler_key_proof` are of its shuffler; the coalition's claim follows the
    local ε.
    """
    own, views = dict[str, Any](), list(task.views)
    if "dummies" in changes:
        of_views = getattr(changes["dummies"], "views", [changes["dummies"]])
        pairs = zip(views, of_views, strict=True)
        views = [replace(view, dummies=dummies) for view, dummies in pairs]
        del changes["dummies"]
    if "domain_size" in changes:
        views[-1] = replace(views[-1], domain_size=changes.pop("domain_size"))
    if spec := changes.pop("shuffler", None):
        own = {"keep_weight": spec.keep_weight, "noise": (spec.noise,) * len(views)}
    for name, field in (("shuffler_key", "key"), ("shuffler_key_proof", "proof")):
        if name in changes:
            own[field] = changes.pop(name)
    if "local_epsilon" in changes:
        changes.setdefault("coalition_epsilon", changes["local_epsilon"])
    shufflers = with_shufflers(task, own).shufflers
    return replace(task, **{"views": tuple(views), "shufflers": shufflers, **changes})
