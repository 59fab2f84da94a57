"""Commands that call running services: task create, result, ledger, close, contribute."""

import asyncio
import json as json_reader
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.errors import KeyFormatError, SettingsError, ValueRangeError
from common.guarantee import rounded_up
from common.hpke import HpkePublicKey
from common.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy import draft_file
from deploy import ledger as ledger_table
from deploy.commands.options import (
    AgentAddress,
    AnalyzerAddress,
    AsJson,
    Authority,
    Certificate,
    CertificateKey,
    Person,
    TokenFile,
    hexadecimal,
)
from deploy.operator_client import OperatorClient
from deploy.person_client import send
from deploy.result_json import as_json, dumps
from deploy.shuffler_operator import close_batch

_ITEM_DIGITS = 20
"""Of the largest number that a call carries, 2^64 - 1."""

app = typer.Typer()
task_app = typer.Typer(help="Tasks: what is collected, under which promise.", no_args_is_help=True)
app.add_typer(task_app, name="task")


@task_app.command(
    "create",
    epilog="Example: shuffledp task create draft.toml --analyzer 127.0.0.1:7001 --token-file "
    "state/analyzer/operator.token --authority state/tls/authority.pem --shuffler-key "
    "state/shuffler/envelope.pub",
)
def task_create(
    draft: Annotated[Path, typer.Argument(help="A TOML file with the keys of a draft.")],
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    shuffler_key: Annotated[
        Path,
        typer.Option(
            help="The shuffler's public key: STATE/envelope.pub, or STATE/envelope-SUITE.pub if "
            "the draft names a suite."
        ),
    ],
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    json: AsJson = False,
) -> None:
    """Publish a task, signed by the analyzer. Needs the operator's token."""
    _check_no_identity(shuffler_key)
    wanted = draft_file.read(draft, _hexadecimal_file(shuffler_key))
    HpkePublicKey(wanted.suite, wanted.shuffler_key)  # said here, where the file was named

    async def create() -> None:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            signed = await operator.create_task(wanted)
        task = Task.from_bytes(signed.task_bytes)
        if json:
            fields = json_reader.loads(signed.task_bytes)
            written = dumps({"task_digest": signed.digest().hex(), "task": fields})
            sys.stdout.write(written + "\n")
            return
        Console().print(
            f"Task {signed.digest().hex()}\n"
            f"Users will be promised: epsilon {rounded_up(task.central_epsilon)} at delta "
            f"{rounded_up(task.delta)} against the analyzer, if "
            f"{task.honest_users(task.n_min)} users are honest; "
            f"epsilon {rounded_up(task.local_epsilon)} against shuffler and analyzer together.\n"
            "All releases to this population together may cost at most epsilon "
            f"{rounded_up(task.budget_epsilon)} at delta {rounded_up(task.budget_delta)} "
            "against the analyzer."
        )

    asyncio.run(create())


@app.command(
    epilog="Example: shuffledp result 5b1f… --analyzer 127.0.0.1:7001 --token-file "
    "state/analyzer/operator.token --authority state/tls/authority.pem",
)
def result(
    task: Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")],
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
) -> None:
    """Print a released result as JSON. Needs the operator's token."""
    digest = TaskDigest(hexadecimal("the task's digest", task, DIGEST_BYTES))

    async def read() -> None:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            sys.stdout.write(dumps(as_json(await operator.result(digest))) + "\n")

    asyncio.run(read())


@app.command(
    epilog="Example: shuffledp ledger --analyzer 127.0.0.1:7001 --token-file "
    "state/analyzer/operator.token --authority state/tls/authority.pem",
)
def ledger(
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    json: AsJson = False,
) -> None:
    """Print what every release cost, and verify the chain. Needs the operator's token."""

    async def read() -> None:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            entries, head = await operator.ledger()
        if json:
            sys.stdout.write(dumps(ledger_table.as_json(entries, head)) + "\n")
            return
        ledger_table.show(entries, head, Console())

    asyncio.run(read())


@app.command(
    epilog="Example: shuffledp close 5b1f… --shuffler 127.0.0.1:7002 --token-file "
    "state/shuffler/operator.token --authority state/tls/authority.pem",
)
def close(
    task: Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")],
    shuffler: Annotated[str, typer.Option(help="Address of the shuffler, host:port.")],
    token_file: TokenFile,
    authority: Authority = None,
    json: AsJson = False,
) -> None:
    """Close a task's batch now, if it has enough users. Needs the token of the shuffler's operator.

    Nothing of the batch is told but that it is closed; the result comes as it would have after the
    deadline.
    """
    digest = TaskDigest(hexadecimal("the task's digest", task, DIGEST_BYTES))
    asyncio.run(close_batch(shuffler, authority, token_file, digest))
    if json:
        sys.stdout.write(dumps({"task_digest": digest.hex(), "closed": True}) + "\n")
        return
    Console().print("The batch is closed: nobody else is taken in.")


@app.command(
    epilog="Example: shuffledp contribute 5b1f… --agent unix:state/user_agent.sock < value.txt",
)
def contribute(
    task: Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")],
    agent: AgentAddress,
    person: Person = "",
) -> None:
    """Contribute one value, an item's number, through your own user agent."""
    digest = TaskDigest(hexadecimal("the task's digest", task, DIGEST_BYTES))
    # Asked for, or read from standard input: an argument would stay in the shell's history.
    value = typer.prompt("Your value", hide_input=True) if sys.stdin.isatty() else sys.stdin.read()
    receipt = asyncio.run(send(agent, digest, _item(value), person))
    Console().print(
        "This task had been answered before; the value was not used. What had not arrived of the "
        "earlier answer has been sent."
        if receipt.repeated
        else f"Contributed. This spends a local epsilon of {rounded_up(receipt.local_epsilon)}."
    )


def _item(text: str) -> int:
    """Read a value; the message never repeats it."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _ITEM_DIGITS):
        raise ValueRangeError("a value is an item's number, 0 or more")
    return int(digits)


def _check_no_identity(path: Path) -> None:
    """
    Refuse the file beside the right one, which looks like it: no envelope would ever open.

    Raises:
        SettingsError: It is, or says the same as, a signing identity.
    """
    identity = path.with_name("identity.pub")
    if identity.exists() and path.exists() and identity.read_bytes() == path.read_bytes():
        raise SettingsError(
            f"{path} holds the shuffler's signing identity; the key that tasks name is in "
            "envelope.pub"
        )


def _hexadecimal_file(path: Path) -> bytes:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KeyFormatError(f"{path} must hold hexadecimal digits") from error
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise KeyFormatError(f"{path} must hold hexadecimal digits") from error
