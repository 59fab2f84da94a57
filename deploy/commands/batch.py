"""`shuffledp batch`: release or drop a batch at the analyzer, show or erase one at a shuffler."""

from dataclasses import asdict
from functools import partial
from typing import Final

from shuffledp.common.messages.ledger_entry import MAX_NOTE_CHARACTERS, Decision, DecisionEntry
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.escape import visible

_EXAMPLE: Final = 'shuffledp batch {} DIGEST --note "junk from one network"'
app = options.command_group(
    "batch",
    "Show a batch at a shuffler; release, drop or erase one that got no result.",
    _EXAMPLE.format("release"),
)

_HELP: Final[dict[Decision, str]] = {
    "release": "Estimate a quarantined batch in spite of its failed check.\n\n"
    "The result carries a warning with the check and the note. Guarantees no longer rely on the "
    "failed check.",
    "drop": "Erase a batch without a result: its task never gets one.",
}
_NOTE: Final = f"""

Options:
    note: Your reason, signed by the analyzer: public, final, at most {MAX_NOTE_CHARACTERS}
        characters.
"""
_CONSEQUENCES: Final[dict[Decision, str]] = {
    "release": "The analyzer estimates the batch. The result will carry this note as a warning.",
    "drop": "The analyzer erases the batch. Its task never gets a result.",
}


def _add_command(decision: Decision) -> None:
    """Add the command of a decision."""

    def decide(
        task: options.TaskArgument, note: str, connections: options.Connections
    ) -> options.Printed:
        entry = options.ask(connections.analyzer, lambda peer: peer.decide(task, decision, note))
        return entry, describe_decision(entry)

    decide.__doc__ = _HELP[decision] + _NOTE
    options.command(app, _EXAMPLE.format(decision), name=decision)(decide)


def describe_decision(entry: DecisionEntry) -> str:
    """Describe a decision and its consequence, with untrusted text escaped."""
    reason, note = visible(entry.reason), visible(entry.note)
    ledger = f"Entry {entry.entry:,} of the ledger, with the note: {note}"
    return f"{_CONSEQUENCES[entry.decision]}\nReason: {reason}.\n{ledger}"


_add_command("release")
_add_command("drop")


@options.command(app, "shuffledp batch show DIGEST", "shuffledp batch show DIGEST --relay")
def show(
    task: options.TaskArgument, connections: options.Connections, relay: options.Flag = False
) -> options.Printed:
    """Print the state of a task's batch at a shuffler.

    Options:
        relay: The shuffler is the second one of a task with two; needs its operator token, and
            operator.pem beside the authority.
    """
    from shuffledp.deploy.clients.shuffler import ShufflerClient
    from shuffledp.deploy.tasks import task_view

    connect = partial(connections.shuffler, relay=relay, operator=relay)
    status = options.ask(connect, partial(ShufflerClient.status_or_none, digest=task))
    shown = task_view.print_relay if relay else task_view.print_batch
    fields = asdict(status) if status else {"state": None}
    return fields, partial(shown, status)


@options.command(app, "shuffledp batch erase DIGEST")
def erase(
    task: options.TaskArgument, connections: options.Connections, relay: options.Flag = False
) -> options.Printed:
    """Erase a closed batch at the shuffler, undelivered.

    Use it if the analyzer refuses the batch, or never takes or confirms it. Needs the shuffler's
    operator token.

    Options:
        relay: The shuffler is the second one of a task with two; needs operator.pem too.
    """
    from shuffledp.deploy.tasks.task_view import describe_state

    connect = partial(connections.shuffler, relay=relay)
    state = options.ask(connect, lambda client: client.drop_batch(task))
    fields = {"task_digest": task.hex(), "erased": True, "state": state.value}
    return fields, ". ".join(describe_state(state, None))
