"""Publish a task, and tell its operator what keeps devices from answering it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.console import Console

from common.crypto.signing import SignedTask
from common.task.draft import TaskDraft
from common.task.task import Task, cached_task
from deploy.clients.analyzer import OperatorClient
from deploy.tasks import task_view
from deploy.terminal.escape import escaped


class Publication(NamedTuple):
    """A published task."""

    signed: SignedTask
    cosigned: Mapping[str, str] | None
    """By witness, why it has not cosigned, empty if it has; None for a task published earlier."""

    @property
    def task(self) -> Task:
        """The task."""
        return cached_task(self.signed.task_bytes)

    @property
    def warnings(self) -> list[str]:
        """Reasons why devices refuse the task or wait."""
        texts = [f"{name}: {why}." for name, why in (self.cosigned or {}).items() if why]
        if self.cosigned == {}:
            texts.append("The log has no witness: only devices with allow_unlogged_tasks answer.")
        if self.task.tokens is None:
            texts.append(
                "Warning: the task has no tokens, so devices refuse it by default. Publish it with "
                "--token-key, from shuffledp issuer new-key."
            )
        return texts

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields; `cosigned` is null for a task published earlier."""
        known = self.cosigned
        return {
            "task_digest": self.signed.digest().hex(),
            "task": task_view.as_json(self.task),
            "cosigned": None if known is None else {name: not why for name, why in known.items()},
            "warnings": self.warnings,
        }

    def show(self, console: Console) -> None:
        """Print the claim, how many witnesses have cosigned, and the warnings."""
        console.print(task_view.describe_claim(self.task), soft_wrap=True)
        if self.cosigned:
            count = list(self.cosigned.values()).count("")
            console.print(
                f"Logged; {count} of {len(self.cosigned)} witnesses have cosigned."
                + " The analyzer retries; devices wait for theirs." * (count < len(self.cosigned))
            )
        for warning in self.warnings:
            console.print(escaped(warning), soft_wrap=True, highlight=False)


async def publish(draft: TaskDraft, operator: OperatorClient) -> Publication:
    """Publish a draft that has all keys."""
    return Publication(*await operator.publish_task(draft))
