"""`shuffledp keys`: certificates, and services' signing identities."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from common.crypto.hpke import fingerprint
from common.runtime.certificates import (
    FRONT_END,
    INTERNAL_ROLES,
    ISSUER,
    PARTIES,
    WARN_DAYS,
)
from common.runtime.clock import SystemClock
from common.runtime.key_store import load_identity, renew_identity
from common.runtime.state_directory import StateDirectory
from deploy.clients.key_folder import KeyFolder
from deploy.commands.options import AsJson, read_identity
from deploy.terminal.console import terminal
from deploy.terminal.help_examples import example
from deploy.terminal.json_output import print_json
from deploy.terminal.tables import add_columns

app = typer.Typer()
keys_app = typer.Typer(
    help="Certificates of your own authority, and signing identities.",
    no_args_is_help=True,
    epilog=example("shuffledp keys make keys --host analyzer.example.org"),
)
app.add_typer(keys_app, name="keys")
Directory = Annotated[Path, typer.Argument(help="Folder of the authority.")]


@keys_app.command(
    "make", epilog=example("shuffledp keys make keys --party analyzer --host analyzer.example.org")
)
def make(
    directory: Directory,
    party: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Certificate to create, repeatable: {', '.join(PARTIES)} [these four]; "
            f"{ISSUER}; {FRONT_END}; or, for a party's internal authority, "
            f"{', '.join(INTERNAL_ROLES)}."
        ),
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="Host name or address of a service; repeatable.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Create an authority and certificates.

    Copy each party's folder to its machine: PARTY.pem, PARTY.key and authority.pem, for the
    settings tls_certificate, tls_key and tls_authority. Keep authority.key away from services.
    """
    folder = KeyFolder(directory)
    folder.make(party or PARTIES, host or (), SystemClock().now())
    _print(folder, json=json, written=True)


@keys_app.command("renew", epilog=example("shuffledp keys renew keys shuffler"))
def renew(
    directory: Directory,
    party: Annotated[str | None, typer.Argument(help="Party to renew.  [all]")] = None,
    json: AsJson = False,
) -> None:
    """Issue new certificates under the same authority.

    They have new keys; old certificates stay valid until they expire. Copy the new files over the
    old ones: a service uses them from the next connection on, without a restart.
    """
    folder = KeyFolder(directory)
    folder.renew(party, SystemClock().now())
    _print(folder, json=json, written=True)


@keys_app.command(
    "show", epilog=example("shuffledp keys show keys --identity state/analyzer/identity.pub")
)
def show(
    directory: Directory,
    identity: Annotated[
        Path | None, typer.Option(help="The analyzer's identity.pub, to print its fingerprint too.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List certificates and their expiry."""
    _print(
        KeyFolder(directory),
        identity=None if identity is None else fingerprint(read_identity(identity).raw),
        json=json,
    )


@keys_app.command("identity", epilog=example("shuffledp keys identity state/analyzer"))
def identity(
    state_directory: Annotated[
        Path, typer.Argument(help="The party's state directory, as in its settings.")
    ],
    state_key: Annotated[
        Path | None,
        typer.Option(help="The party's state_key, as in its settings.  [STATE_DIRECTORY.key]"),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Destroy the existing identity and create a new one.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print, create or renew a party's signing identity.

    Others pin the printed identity, which is also in identity.pub in that folder. After a renewal,
    everyone who pins the old identity refuses the new one's signatures. Renew between two
    collections while the service is stopped, and inform everyone.
    """
    state = StateDirectory.open(state_directory, state_key)
    with state.held() if renew else nullcontext():
        made = (renew_identity if renew else load_identity)(state).public_identity()
    shown = {"identity": made.raw.hex(), "fingerprint": fingerprint(made.raw)}
    if json:
        print_json(shown)
        return
    terminal().print(f"{shown['identity']}\nFingerprint: {shown['fingerprint']}", soft_wrap=True)


def _print(
    folder: KeyFolder, *, json: bool, identity: str | None = None, written: bool = False
) -> None:
    now = SystemClock().now()
    listed: list[dict[str, Any]] = [
        {
            "party": party,
            "file": str(file),
            "names": found.names or [found.name],
            "sha256": found.fingerprint,
            "days_left": (left := found.days_left(now)),
            "ends_soon": left < WARN_DAYS,
        }
        for party, (file, found) in folder.show().items()
    ]
    if json:
        print_json({"certificates": listed, "signing_identity": identity})
        return
    console, table = terminal(), Table(title="Certificates")
    add_columns(table, dict.fromkeys(("party", "days left", "names", "SHA-256"), "left"))
    for row in listed:
        days = "ended" if row["days_left"] < 0 else str(row["days_left"])
        table.add_row(row["party"], days, ", ".join(row["names"]), row["sha256"])
    console.print(table)
    if written:
        console.print(f"Written to {folder.path}.", markup=False, soft_wrap=True)
    if identity is not None:
        console.print(f"Fingerprint of the analyzer's signing identity: {identity}.")
    if soon := ", ".join(row["party"] for row in listed if row["ends_soon"]):
        console.print(f"Renew these, which expire in less than {WARN_DAYS} days: {soon}.")
