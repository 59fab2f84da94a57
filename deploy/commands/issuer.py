"""`shuffledp issuer`: people's secrets and tasks' token keys, for the issuer of tokens."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

import typer

from common.errors import SettingsError
from common.runtime.state_directory import atomic_write
from deploy.clients.issuer import IssuerClient
from deploy.commands.options import AsJson, Authority, TokenFile, ask
from deploy.terminal.console import terminal
from deploy.terminal.files import check_folder, read_file, write, writing
from deploy.terminal.help_examples import AT_ISSUER, example
from deploy.terminal.json_output import print_json
from issuer.entitlements import parse_people

app = typer.Typer()
issuer_app = typer.Typer(
    help="The issuer of tokens: people's secrets, and a token key for each task.",
    no_args_is_help=True,
    epilog=example("shuffledp issuer people names.txt --output-dir people"),
)
app.add_typer(issuer_app, name="issuer")

_SECRET_BYTES: Final = 32


@issuer_app.command(
    "people", epilog=example("shuffledp issuer people names.txt --output-dir people")
)
def people(
    names_file: Annotated[Path, typer.Argument(help="Names of the people, one per line.")],
    output_dir: Annotated[Path, typer.Option(help="New folder for the two files.")],
    json: AsJson = False,
) -> None:
    """Draw a secret for each person.

    With it a person gets one token for each task.
    Writes people.txt for the issuer's setting `people`, which has only hashes, and credentials.txt
    with lines NAME SECRET: give each person theirs, and delete that file. To add people later, draw
    theirs into another folder, and append its people.txt to the issuer's; it needs no restart.
    """
    names = _names(read_file(names_file))
    drawn = {name: secrets.token_bytes(_SECRET_BYTES) for name in names}
    hashes = [f"{name} {sha256(secret).hexdigest()}" for name, secret in drawn.items()]
    own = [f"{name} {secret.hex()}" for name, secret in drawn.items()]
    listed, credentials = output_dir / "people.txt", output_dir / "credentials.txt"
    parse_people(_text(hashes))
    if output_dir.exists():
        raise SettingsError(f"{output_dir} already exists and may hold secrets in use")
    with writing(output_dir):
        output_dir.mkdir(mode=0o700)
        atomic_write(credentials, _text(own), 0o600)
        atomic_write(listed, _text(hashes), 0o600)
    if json:
        print_json({"people": len(names), "list": str(listed), "credentials": str(credentials)})
        return
    terminal().print(
        f"{len(names)} secrets drawn.\nFor the issuer: {listed}\nFor the people: {credentials}",
        markup=False,
        soft_wrap=True,
    )


@issuer_app.command(
    "new-key", epilog=example(f"shuffledp issuer new-key --end 2030-01-31 {AT_ISSUER}")
)
def new_key(
    end: Annotated[
        datetime,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="When the key ends, in UTC: no earlier than the task's deadline.",
        ),
    ],
    issuer: Annotated[str, typer.Option(help="Address of the issuer, host:port.")],
    token_file: TokenFile,
    authority: Authority = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the key, in hexadecimal digits.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Create the token key of one task, for its draft. Needs the operator token.

    A key must serve one task only: with a second one, people could not get another token.
    """
    check_folder(out)
    seconds = int(end.replace(tzinfo=UTC).timestamp())
    connect = partial(IssuerClient.connect, issuer, authority, token_file)
    key, name = ask(connect, lambda client: client.create_key(seconds))
    if out is not None:
        write(out, key.der.hex() + "\n")
    if json:
        print_json(
            {
                "token_key": key.der.hex(),
                "key_id": key.key_id.hex(),
                "issuer_name": name,
                "end": seconds,
            }
        )
        return
    shown = key.der.hex() if out is None else f"Written to {out}."
    terminal().print(f"Token key of {name}:\n{shown}", markup=False, soft_wrap=True)


def _names(raw: bytes) -> list[str]:
    try:
        lines = raw.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SettingsError("the file of names is not UTF-8 text") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names or len(set(names)) < len(names):
        raise SettingsError("the file of names is empty, or repeats a name")
    return names


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
