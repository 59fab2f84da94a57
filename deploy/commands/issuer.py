"""`shuffledp issuer`: people's secrets, tasks' token keys, and tokens for tests."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.state_directory import atomic_write
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import terminal
from shuffledp.deploy.terminal.files import all_or_nothing, write, writing
from shuffledp.deploy.terminal.json_output import dumps
from shuffledp.user_agent.credentials import CredentialFile

app = options.command_group(
    "issuer",
    "Prepare the issuer of one-time tokens: people's secrets, and a key for each task.",
    "shuffledp issuer people names.txt --output-dir people",
)


@options.command(app, "shuffledp issuer people names.txt --output-dir people")
def people(names_file: Annotated[Path, typer.Argument()], output_dir: Path) -> options.Printed:
    """
    Draw a secret for each person.

    With it a person gets one token for each task.
    Writes people.txt for the issuer's setting `people`, which has only hashes, and credentials.txt
    with lines NAME SECRET: give each person theirs, and delete that file. To add people later, draw
    theirs into another folder, and append its people.txt to the issuer's; it needs no restart.

    Options:
        names_file: Names of the people, one per line.
        output_dir: New folder for the two files.
    """
    from shuffledp.common.runtime.validation import read_file
    from shuffledp.deploy.clients.issuer import draw_people
    from shuffledp.issuer.entitlements import parse_people

    names = _names(read_file(names_file))
    drawn = draw_people(names)
    listed, credentials = output_dir / "people.txt", output_dir / "credentials.txt"
    parse_people(drawn.listed)
    if output_dir.exists():
        raise SettingsError(f"{output_dir} already exists and may hold secrets in use")
    with all_or_nothing([output_dir], "*.txt"):
        output_dir.mkdir(mode=0o700)
        atomic_write(credentials, drawn.credentials, 0o600)
        atomic_write(listed, drawn.listed, 0o600)
    fields = {"people": len(names), "list": str(listed), "credentials": str(credentials)}
    text = f"{len(names)} secrets drawn.\nFor the issuer: {listed}\nFor the people: {credentials}"
    return fields, text


@options.command(app, "shuffledp issuer new-key --end 2030-01-31")
def new_key(
    end: Annotated[datetime, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])],
    connections: options.Connections,
    population: str = "",
    output: options.Output = Path("token-key.json"),
) -> options.Printed:
    """
    Create the token key of one task. Needs the operator token.

    Hand the file to the analyzer's operator; nothing in it is secret. A key must serve one task
    only: with a second one, people could not get another token.

    Options:
        end: When the key ends, in UTC: no earlier than the task's deadline.
        population: The task's population. If the issuer caps tokens, those of one population are
            counted together, and so are those of tasks without one.
        output: File for the key, for `shuffledp task create --token-key`.
    """
    from shuffledp.common.task.canonical import to_json

    if output.exists():
        raise SettingsError(f"{output} already exists and may hold a key in use; use --output")
    seconds = int(end.replace(tzinfo=UTC).timestamp())
    tokens = options.ask(connections.issuer, lambda client: client.create_key(seconds, population))
    write(output, dumps(to_json(tokens)))
    key_id = tokens.token_key().key_id.hex()
    fields = {"file": str(output), "key_id": key_id, "issuer": tokens.issuer, "end": tokens.end}
    return fields, f"Key of {tokens.issuer} written to {output}."


@options.command(
    app,
    "shuffledp issuer tokens DIGEST --credentials people/credentials.txt --output tokens.txt",
    name="tokens",
)
def fetch(
    task: options.TaskArgument,
    credentials: Path,
    output: options.Output,
    connections: options.Connections,
) -> options.Printed:
    """
    Get tokens of one task, for sentinels and load tests.

    Devices get their tokens themselves. After an interruption, run the same command again.

    Options:
        credentials: File of lines NAME SECRET.
        output: New file for the tokens, one per line.
    """
    from shuffledp.common.crypto.randomness import new_seed
    from shuffledp.common.task.task import Task
    from shuffledp.deploy.clients.issuer import fetch_tokens

    if output.exists():
        raise SettingsError(f"{output} already exists and may hold tokens in use")
    people = CredentialFile(credentials).all()
    seed_file = output.with_name(f"{output.name}.seed")
    with writing(seed_file):
        if not seed_file.exists():
            atomic_write(seed_file, new_seed(), 0o600)

    async def get(progress: Callable[[int], None]) -> list[bytes]:
        async with connections.device() as device:
            signed = await device.fetch_task(task)
        wanted = Task.verified(signed, task, None).tokens
        if wanted is None:
            raise SettingsError("this task requires no tokens")
        async with connections.issuer(operator=False) as client:
            return await fetch_tokens(
                client, wanted, task, people, seed=seed_file.read_bytes(), progress=progress
            )

    with Progress(console=terminal(stderr=True)) as bar:
        shown = bar.add_task("Tokens", total=len(people))
        tokens = asyncio.run(get(lambda more: bar.advance(shown, more)))
    with writing(output):
        atomic_write(output, "".join(f"{token.hex()}\n" for token in tokens).encode(), 0o600)
        seed_file.unlink()
    fields = {"tokens": len(tokens), "file": str(output)}
    return fields, f"Tokens written to {output}: {len(tokens)}."


@options.command(
    app,
    "shuffledp issuer invite DIGEST --credentials people/credentials.txt "
    "--page https://poll.example.org/ --output invitations.txt",
)
def invite(
    task: options.TaskArgument,
    credentials: Path,
    page: str,
    person: options.Person = "",
    output: options.OptionalOutput = None,
) -> None:
    """
    Make people's invitations to a task.

    Each is an address of the publisher's page, and has the person's credential: give
    each person only theirs.

    Options:
        credentials: File of lines NAME SECRET.
        page: Address of the publisher's page.
        person: Only this person's address.
        output: File for lines NAME ADDRESS, which only you can read.
    """
    from shuffledp.deploy.clients.issuer import invitation, lines

    file = CredentialFile(credentials)
    people = [("", file.of(person))] if person else file.people()
    invited = {name: invitation(page, task, secret) for name, secret in people}
    if output is None:
        shown = lines(invited)
        terminal().print(shown, end="", markup=False, highlight=False, soft_wrap=True)
        return
    with writing(output):
        atomic_write(output, lines(invited).encode(), 0o600)
    terminal().print(
        f"Invitations written to {output}: {len(invited)}.", markup=False, soft_wrap=True
    )


def _names(raw: bytes) -> list[str]:
    try:
        lines = raw.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SettingsError("the file of names is not UTF-8 text") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names or len(set(names)) < len(names):
        raise SettingsError("the file of names is empty, or repeats a name")
    return names
