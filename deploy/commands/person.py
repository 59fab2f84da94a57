"""`shuffledp contribute` and `receipt`: commands to a person's user agent."""

import asyncio
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from shuffledp.common.errors import PeerRefusalError, ValueRangeError
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.protocols import Kind
from shuffledp.common.task.kinds import KINDS
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import terminal
from shuffledp.deploy.terminal.escape import escaped, visible
from shuffledp.deploy.terminal.json_output import print_answer

if TYPE_CHECKING:
    from shuffledp.protos.shuffledp.v1 import user_agent_pb2
app = typer.Typer()


@options.command(
    app,
    "shuffledp contribute DIGEST --address agent=unix:state/user_agent.sock < value.txt",
    "shuffledp contribute DIGEST --person Ada",
)
def contribute(
    task: options.TaskArgument,
    connections: options.Connections,
    person: options.Person = "",
    kind: Kind | None = None,
    json: options.AsJson = False,
) -> None:
    """
    Contribute a value from a prompt or standard input. Never pass the value as an argument.

    First prints the task's texts, such as its question and purpose, which its analyzer signed.

    A value is an item's label, or its number (after # if there are labels), a number, a text,
    numbers such as 1, 2.5, or pairs of key and number such as 3:0.5, 17:1. In a task with a
    breakdown, your group comes first, as in DE / 36.6.

    Options:
        kind: Only to answer the prompt with an empty text (string) or no keys (key-value); the
            agent knows the task's kind.
    """
    from shuffledp.common.task.task import MOST_CHARACTERS
    from shuffledp.deploy.clients.user_agent import ask_for_question, send

    agent, by_hand = connections.address("agent"), sys.stdin.isatty()
    asked = None
    try:
        asked = asyncio.run(ask_for_question(agent, task))
    except PeerRefusalError:  # after the deadline, also of a task that was answered in time
        if by_hand:
            raise
    if asked and not json:
        terminal().print(describe_texts(asked), markup=False, end="")
    # Not an argument, which would stay in the shell's history.
    value = prompt_for_value(kind) if by_hand else read_piped_value()
    receipt = asyncio.run(send(agent, task, value, person))
    name = f" --person {shlex.quote(person)}" if person else ""
    question = f"shuffledp receipt {task.hex()}{name}"
    fields = {
        "task_digest": task.hex(),
        **(asked or dict.fromkeys(MOST_CHARACTERS)),
        "repeated": receipt.repeated,
        "local_epsilon": receipt.local_epsilon,
        "coalition_epsilon": receipt.coalition_epsilon,
        "sent": receipt.sent,
    }
    print_answer(fields, describe_contribution(receipt, question), json=json)


def describe_texts(texts: Mapping[str, str]) -> str:
    """Return a line for each text that is not empty: its field, unless title or question."""
    unnamed = {"title", "prompt"}
    return "".join(
        f"{'' if name in unnamed else f'{name.capitalize()}: '}{visible(text)}\n"
        for name, text in texts.items()
        if text
    )


def prompt_for_value(kind: Kind | None) -> str:
    """Prompt for a value; repeat while it is empty, unless its kind allows an empty value."""
    may_be_empty = kind is not None and "empty_values" in KINDS[kind].options
    nothing = "" if may_be_empty else None
    return str(
        typer.prompt("Your value", default=nothing, hide_input=True, show_default=False, err=True)
    )


def read_piped_value() -> str:
    """Read a piped value without a byte order mark or its line's end, or raise ValueRangeError."""
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        # The codec's message would contain part of the value.
        raise ValueRangeError("a value must be text in UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


def describe_contribution(receipt: "user_agent_pb2.ContributeResponse", question: str) -> str:
    """Describe the outcome of a contribution; `question` is the command that shows its receipt."""
    if not receipt.repeated:
        spent = f"a local epsilon of {rounded_up(receipt.local_epsilon)}"
        if 0 < receipt.coalition_epsilon < receipt.local_epsilon:  # 0 of an earlier agent
            spent = f"a coalition epsilon of {rounded_up(receipt.coalition_epsilon)}"
            spent += "; against both shufflers with the analyzer there is no bound"
        return f"Contributed. This spends {spent}. Check later with {question}"
    earlier = "had not arrived and has now been sent" if receipt.sent else "has arrived"
    return f"You already answered this task; the value was not used. The earlier answer {earlier}."


_MEANING = {
    "pending": "It has not arrived; this device sends it again.",
    "refused": "The shuffler or issuer refused it; it is not resent. What it spends stays spent.",
    "lost": "This device was restored from a backup without it. What it spends stays spent.",
    "unchecked": "The batch is not delivered, or was delivered after this device's last check.",
    "counted": "The analyzer signed for all reports of your answer.",
    "missing": "The analyzer signed for a batch without your answer: the shuffler lost it.",
    "sampled": "This task lets the shuffler drop reports, so one answer cannot be checked.",
    "unproven": "No proof long after the deadline: the batch expired, or the shuffler hides it.",
}
_MEANING_WITH_TWO = _MEANING | {
    "counted": "Checked: your answer reached the second shuffler, which signed for all reports. "
    "Only sampled, by test submissions: that the analyzer got them from there.",
    "missing": "The second shuffler signed for a batch without your answer: the first one lost it.",
}


@options.command(app, "shuffledp receipt DIGEST")
def receipt(
    task: options.TaskArgument, connections: options.Connections, person: options.Person = ""
) -> options.Printed:
    """Show whether your answer arrived and was counted, with the shuffler's receipt."""
    from shuffledp.deploy.clients.user_agent import ask_for_receipt

    answer = asyncio.run(ask_for_receipt(connections.address("agent"), task, person))
    fields = {
        "task_digest": task.hex(),
        "state": answer.state,
        "inclusion": answer.inclusion,
        "envelope_hash": answer.envelope_hash.hex(),
        "receipt": answer.receipt.hex(),
        "signer": answer.signer,
        "hops": hops_of(answer),
    }
    return fields, partial(show_receipt, answer)


def hops_of(answer: "user_agent_pb2.GetReceiptResponse") -> list[dict[str, str]]:
    """Return who checks each hop of an answer; with two shufflers sentinels sample the second."""
    checked = {"to": answer.signer, "checked_by": "this device", "inclusion": answer.inclusion}
    sampled = [{"to": "analyzer", "checked_by": "sentinels"}] * (answer.signer == "relay")
    return [checked, *sampled]


def show_receipt(answer: "user_agent_pb2.GetReceiptResponse", console: Console) -> None:
    """Print an answer's state, even one unknown to this program."""
    state, proof = escaped(answer.state), escaped(answer.inclusion)
    two = answer.signer == "relay"
    if proof == "unchecked":
        proof = "not checked yet; this device checks regularly"
    elif proof == "counted" and two:
        proof = "reached the second shuffler"
    sent = answer.state not in _MEANING
    meaning = _MEANING_WITH_TWO if two else _MEANING
    console.print(f"Your answer: {state}." + f" Proof: {proof}." * sent)
    console.print(meaning.get(answer.inclusion if sent else answer.state, ""))
    if answer.receipt:
        console.print(f"Receipt (verified): {answer.receipt.hex()}", soft_wrap=True)
        console.print(f"of the envelope with SHA-256 {answer.envelope_hash.hex()}", soft_wrap=True)
