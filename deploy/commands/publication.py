"""Complete, preview and publish drafts; tell operators what keeps devices from answering."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from shuffledp.common.crypto.signing import KeyUse, SignedTask, split_key
from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task, cached_task
from shuffledp.deploy.commands import options
from shuffledp.deploy.tasks import task_view
from shuffledp.deploy.tasks.forecast import DEVICE_CAPS
from shuffledp.deploy.terminal.escape import escaped

_NO_TOKENS: Final = (
    "the task has no tokens, so devices refuse it by default; publish it with --token-key, from "
    "shuffledp issuer new-key"
)

_HASTY_SECONDS: Final = 600
"""Time to the deadline below which operators are warned."""


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
        texts = [f"{name}: {why}" for name, why in (self.cosigned or {}).items() if why]
        if self.cosigned == {}:
            texts.append("the log has no witness: only devices with allow_unlogged_tasks answer")
        return texts + _refusals_by_default(self.task)

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
        """Print the digest, the claim, how many witnesses have cosigned, and the warnings."""
        console.print(f"Task {self.signed.digest().hex()}", soft_wrap=True)
        console.print(task_view.describe_claim(self.task))
        if self.cosigned:
            count = list(self.cosigned.values()).count("")
            console.print(
                f"Logged; {count} of {len(self.cosigned)} witnesses have cosigned."
                + " The analyzer retries; devices wait for theirs." * (count < len(self.cosigned))
            )
        _show_warnings(self.warnings, console)


def _refusals_by_default(task: Task) -> list[str]:
    """Return why devices with default settings refuse a task, or come too late."""
    texts, column = [_NO_TOKENS] * (task.tokens is None), "coalition" if task.relay else "local"
    if task.relay:
        texts.append("devices answer tasks with two shufflers only once relay_identity is set")
    epsilon, cap = getattr(task, f"{column}_epsilon"), DEVICE_CAPS[f"{column}_epsilon_cap"]
    if epsilon > cap:
        texts.append(
            f"the task's {column} epsilon is {epsilon:g}; devices with default settings "
            f"refuse more than {cap:g}"
        )
    left = task.deadline - SystemClock().now()
    if 0 <= left < _HASTY_SECONDS:
        texts.append(f"the deadline is in {left:.0f} seconds; few devices answer before")
    return texts


def _show_warnings(warnings: Iterable[str], console: Console) -> None:
    for warning in warnings:
        console.print(f"Warning: {escaped(warning)}.", highlight=False)


def with_keys(
    draft: TaskDraft,
    connections: options.Connections,
    shuffler_key: Path | None,
    relay_key: Path | None,
    *,
    publishing: bool = True,
) -> TaskDraft:
    """
    Return a draft with the shufflers' keys, of typed files or the profile's; empty without a file.

    Raises UsageError for a key that publishing needs, and for a relay's without a relay.
    """
    if relay_key and draft.relay is None:  # a profile's key serves other drafts
        raise UsageError("--relay-key is for a draft with a table [relay]; this one has none")
    find, relay = connections.needed_file if publishing else connections.file, draft.relay
    if relay is not None:
        file = find("relay_key", relay_key)
        relay = replace(relay, key=_read_key(file, "--relay-key", "relay.pub"))
    key = _read_key(find("shuffler_key", shuffler_key), "--shuffler-key", "envelope.pub")
    return replace(draft, relay=relay, shuffler_key=key)


def _read_key(file: Path | None, option: str, right: str) -> bytes:
    if file is None:
        return b""
    # The signing identity is in the same folder: what is sealed to it would never open.
    identity, key = file.with_name("identity.pub"), options.read_shuffler_key(file, option)
    if identity.exists() and options.read_identity(identity).raw == key:
        raise SettingsError(f"{file} holds the shuffler's signing identity; use {right}")
    return key


def preview(task_draft: TaskDraft) -> options.Printed:
    """Return the guarantees of a draft's task, computed locally, or raise what publishing would."""
    if task_draft.shuffler_key:
        split_key(task_draft.suite, KeyUse.ENVELOPES, task_draft.shuffler_key)
    if (relay := task_draft.relay) and relay.key:
        split_key(task_draft.suite, KeyUse.LAYERS, relay.key)
    task = task_view.preview(task_draft, now=SystemClock().now())
    refusals = _refusals_by_default(task)

    def show(console: Console) -> None:
        console.print("Dry run: nothing is published.")
        console.print(task_view.describe_claim(task))
        _show_warnings(refusals, console)
        task_view.print_task(task, console)
        if task.population:
            console.print("Not checked: the population's remaining budget.")

    warnings = (*task_view.claim_warnings(task), *refusals)
    guarantees = task_view.task_guarantees(task)
    return {"task": task_view.as_json(task), "guarantees": guarantees, "warnings": warnings}, show
