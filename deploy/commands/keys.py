"""`shuffledp keys`: certificates, and services' signing identities."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table

from shuffledp.common.crypto.hpke import fingerprint
from shuffledp.common.dates import utc
from shuffledp.common.runtime import certificates
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.confirmed_clock import confirm
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.deploy.clients.key_folder import KeyFolder
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import terminal
from shuffledp.deploy.terminal.tables import add_columns

app = options.command_group(
    "keys",
    "Create certificates of your own authorities, and signing identities.",
    "shuffledp keys make keys --host analyzer.example.org",
)

_CERTIFICATES: Final = (
    f"{', '.join(certificates.PARTIES)} [these five]; {certificates.WITNESS}; "
    f"{certificates.RELAY}; {certificates.FRONT_END}; or, for a party's internal authority, "
    f"{', '.join(certificates.INTERNAL_ROLES)}"
)

Directory = Annotated[Path, typer.Argument(help="Folder of the authorities.")]
Days = Annotated[int, typer.Option(min=1, max=3650, help="Lifetime of a certificate.")]
StateFolder = Annotated[
    Path, typer.Argument(exists=True, help="The party's state directory, as in its settings.")
]


@options.command(app, "shuffledp keys make keys --party analyzer --host analyzer.example.org")
def make(
    directory: Directory,
    party: list[str] | None = None,
    host: list[str] | None = None,
    days: Days = certificates.LIFETIME_DAYS,
    shared: options.Flag = False,
) -> options.Printed:
    """
    Create an authority for each party, and certificates.

    Copy each party's folder to its machine: PARTY.pem, PARTY.key and authority.pem, for the
    settings tls_certificate, tls_key and tls_authority. Keep the folder authorities away from
    services. Each organization runs this for its own parties, and `keys trust` for the others.

    Options:
        party: Certificate to create, repeatable: {_CERTIFICATES}.
        host: Host name or address of a service; repeatable.
        shared: One authority for all parties, for development and tests.
    """
    folder = KeyFolder(directory)
    folder.make(party or certificates.PARTIES, host or (), SystemClock().now(), days, shared=shared)
    return _printed(folder, written=[f"Written to {folder.path}."])


@options.command(app, "shuffledp keys renew keys --json")
def renew(
    directory: Directory,
    party: Annotated[str | None, typer.Argument()] = None,
    days: Days = certificates.LIFETIME_DAYS,
    force: options.Flag = False,
) -> options.Printed:
    """
    Renew certificates after half of their lifetime.

    Run this daily; the exit status is 0 even if none was due. Copy the new files over the old ones:
    a service uses them from the next connection on, without a restart. They have new keys; old
    certificates stay valid until they expire. Revoked ones are not renewed.

    Options:
        party: Party to renew.  [all]
        force: Renew even before half of the lifetime has passed.
    """
    folder = KeyFolder(directory)
    renewed = folder.renew(party, SystemClock().now(), days, force=force)
    written = [f"Renewed: {', '.join(renewed) or 'none was due'}."]
    return _printed(folder, written=written, renewed=renewed)


@options.command(app, "shuffledp keys trust keys shuffler shuffler.pem")
def trust(
    directory: Directory,
    party: Annotated[str, typer.Argument()],
    file: Annotated[Path, typer.Argument()],
) -> options.Printed:
    """
    Trust another organization's authority for its party.

    It can certify no other party. Compare the printed SHA-256 with the one that its operator's
    `keys show` prints. Then copy each party's authority.pem to its machine.

    Options:
        party: Party that the authority may certify.
        file: Its authority: KEYS/authorities/PARTY.pem of its operator.
    """
    folder = KeyFolder(directory)
    found = folder.trust(party, file)
    return _printed(folder, written=[f"Trusted for the {party}: {found.fingerprint}"])


@options.command(app, "shuffledp keys revoke keys shuffler")
def revoke(directory: Directory, party: Annotated[str, typer.Argument()]) -> options.Printed:
    """Revoke a party's certificates permanently.

    Copy each party's authority.pem to its machine: servers then refuse these certificates at once.
    Clients cannot know, and accept them until they expire, as printed. Operators with folders of
    their own run this with each printed SHA-256.

    Options:
        party: Party, or SHA-256 of one certificate.
    """
    folder = KeyFolder(directory)
    found = folder.revoke(party, SystemClock().now())
    lines = [f"Revoked, and valid until {one.end}: {one.party} {one.fingerprint}" for one in found]
    return _printed(folder, written=lines)


@options.command(app, "shuffledp keys show keys --identity state/analyzer/identity.pub")
def show(directory: Directory, identity: Path | None = None) -> options.Printed:
    """
    List certificates and their expiry.

    Options:
        identity: The analyzer's identity.pub, to print its fingerprint too.
    """
    pinned = None if identity is None else fingerprint(options.read_identity(identity).raw)
    return _printed(KeyFolder(directory), identity=pinned)


@options.command(app, "shuffledp keys identity state/analyzer")
def identity(
    state_directory: Annotated[Path, typer.Argument()],
    state_key: Path | None = None,
    renew: options.Flag = False,
    witness: Literal["witness", "shuffler", "issuer"] | None = None,
) -> options.Printed:
    """
    Print, create or renew a party's signing identity.

    Others pin the printed identity, which is also in identity.pub in that folder. After a renewal,
    everyone who pins the old identity refuses the new one's signatures. Renew between two
    collections while the service is stopped, and inform everyone. The analyzer and devices name a
    witness's key, which is also in witness.pub, in their settings `witnesses`.

    Options:
        state_directory: The party's state directory, as in its settings.
        state_key: The party's state_key, as in its settings.  [STATE_DIRECTORY.key]
        renew: Destroy the existing identity and create a new one.
        witness: Print or create the party's key as a witness of the log instead.
    """
    from shuffledp.common.runtime.key_store import load_identity, renew_identity
    from shuffledp.common.runtime.witness_service import load_witness_key

    state = StateDirectory.open(state_directory, state_key)
    if witness is not None:
        _, key = load_witness_key(state, witness)
        return {"witness": key.to_text()}, key.to_text()
    with state.held() if renew else nullcontext():
        made = (renew_identity if renew else load_identity)(state).public_identity()
    shown = {"identity": made.raw.hex(), "fingerprint": fingerprint(made.raw)}
    text = f"{shown['identity']}\nFingerprint: {shown['fingerprint']}"
    return shown, text


@options.command(app, "shuffledp keys confirm-clock state/shuffler")
def confirm_clock(state_directory: StateFolder) -> None:
    """Confirm this machine's clock to a service.

    Run this on the machine of a service that logs `clock disagrees`, once the clock is right. The
    service then does what is due, such as closing batches and destroying keys.
    """
    found = SystemClock().reading()
    confirm(StateDirectory.open(state_directory), found)
    terminal().print(f"Confirmed: {utc(found.wall)}.", highlight=False)


@options.command(app, "shuffledp keys confirm-restore state/user_agent")
def confirm_restore(state_directory: StateFolder) -> None:
    """
    Confirm that a party's missing files are lost.

    Run this while a service does not start because a file is missing, or a device's store does not
    fit its counter of charges. At its next start the service begins without the file. A user agent
    charges what its store has forgotten; without the counter, all caps.
    """
    from shuffledp.common.runtime.state_directory import RESTORE_CONFIRMED

    state = StateDirectory.open(state_directory)
    with state.held():
        state.publish(RESTORE_CONFIRMED, "")
    terminal().print("Confirmed. Start the service.")


def _printed(
    folder: KeyFolder,
    *,
    identity: str | None = None,
    written: Sequence[str] = (),
    renewed: Sequence[str] = (),
) -> options.Printed:
    now, revoked = SystemClock().now(), folder.revoked()
    listed: list[dict[str, Any]] = [
        {
            "party": party,
            "file": str(file),
            "names": found.names or [found.name],
            "sha256": found.fingerprint,
            "ends": found.end.isoformat(),
            "days_left": (left := found.days_left(now)),
            "ends_soon": left
            < (certificates.WARN_DAYS if found.names else certificates.WARN_AUTHORITY_DAYS),
            "revoked": found.fingerprint in revoked,
        }
        for party, (file, found) in folder.show().items()
    ]

    def show_all(console: Console) -> None:
        table = Table(title="Certificates")
        add_columns(table, dict.fromkeys(("party", "days left", "names"), "left"))
        for row in listed:
            days = "ended" if row["days_left"] < 0 else str(row["days_left"])
            days += ", revoked" * row["revoked"]
            table.add_row(row["party"], days, ", ".join(row["names"]))
        console.print(table)
        for row in listed:  # to compare whole, as no cell is wide enough
            console.print(f"{row['sha256']} {row['party']}", soft_wrap=True, highlight=False)
        for line in written:
            console.print(line, markup=False, soft_wrap=True)
        if identity is not None:
            console.print(f"Fingerprint of the analyzer's signing identity: {identity}.")
        soon = [row["party"] for row in listed if row["ends_soon"] and not row["revoked"]]
        if soon:
            console.print(f"Renew these, which expire soon: {', '.join(soon)}.")

    fields = {"certificates": listed, "renewed": renewed, "signing_identity": identity}
    return fields, show_all
