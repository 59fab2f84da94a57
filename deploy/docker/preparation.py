"""
Create the keys that containers need before their first start; renew only certificates.

    SECRETS/authorities/PARTY.pem, PARTY.key      its authority; no service gets the key
    SECRETS/authority.pem                         the file of trust of all parties
    SECRETS/PARTY/PARTY.pem, PARTY.key            for the analyzer, shuffler, issuer and operator;
                                                  for scale-out also for shuffler-front-end
    SECRETS/PARTY/state.key                       encrypts the party's state
    SECRETS/PARTY/operator.token, identity.pub    for the operator, and for pinning the party
    SECRETS/PARTY/witness.pub                     the shuffler's and issuer's key as witnesses
    SECRETS/issuer/people.txt                     the issuer's list of people
    SECRETS/user_agent, loadgen/credentials.txt    their credentials, for each container's own
    SECRETS/second/                               a second shuffler's operator's, with the folders
                                                  authorities and relay, and another file of trust
    SECRETS/PARTY/internal/                       for scale-out: the party's internal authority
    SECRETS/PARTY/internal/ROLE/                  and what each of its processes gets

`make up` runs this module in the operator's image, as the user that services run as: first for
certificates, without volumes; then for each party, with only that party's volume and secrets. A
link that a compromised service leaves in its volume cannot reach another party's secrets.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.runtime import access, certificates, clock, key_store, tls, witness_service
from shuffledp.common.runtime.state_directory import StateDirectory, atomic_write
from shuffledp.deploy.clients.issuer import draw_people
from shuffledp.deploy.clients.key_folder import KeyFolder

USER: Final = 10001
"""User id of services in every image."""
PARTIES: Final = ("analyzer", "shuffler", "issuer")
"""Parties with an identity, a state key and an operator token."""
IDENTITY_FILE: Final = "identity.pub"
"""Public identity in a party's folder: 64 hexadecimal digits."""
SECOND: Final = "second"
"""Folder of the operator of a second shuffler, among the secrets."""
WITNESSES: Final = ("shuffler", "issuer")
WITNESS_FILE: Final = "witness.pub"
"""Public key of these parties as witnesses of the log, in their folders."""
PEOPLE: Final[Mapping[str, tuple[str, ...]]] = {
    "user_agent": ("anna",),
    "loadgen": tuple(f"simulated-{number}" for number in range(1, 5000)),
}
"""People who may get tokens, by the container that holds their credentials: 5,000, as the shipped
draft needs."""
_CERTIFIED: Final = (*PARTIES, "operator")
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "analyzer": ("coordinator", "worker", "scheduler"),
    "shuffler": certificates.INTERNAL_ROLES,
}
"""Roles with a certificate by a party's internal authority."""
_NO_LISTING: Final = 0o711
"""Folder mode: other users can open files by name but not list them."""
_OWNER_ONLY: Final = 0o600
_PUBLIC: Final = 0o644

_SECRETS: Final = Path("/secrets")
_STATE: Final = Path("/var/lib/shuffledp/state")


def prepare_certificates(
    secrets: Path, now: float, *, internal: bool = False, two_shufflers: bool = False
) -> None:
    """
    Create missing certificates in a folder; with `internal`, also those for scale-out.

    With `two_shufflers`, also those of the second one's operator, whose authority certifies the
    relay; each side trusts the other's authorities of the parties that meet.

    Renews those of which half of the lifetime has passed, if the authorities' keys are there.
    """
    _make_missing(secrets, _CERTIFIED, now)
    if internal:
        _make_missing(secrets, (certificates.FRONT_END,), now)
        for party, roles in ROLES.items():
            _make_missing(secrets / party / "internal", roles, now)
    if two_shufflers:
        second = secrets / SECOND
        _make_missing(second, (certificates.RELAY, "operator"), now)
        _trust(secrets, second, certificates.RELAY)
        for party in ("analyzer", "shuffler"):
            _trust(second, secrets, party)


def _trust(folder: Path, other: Path, party: str) -> None:
    """Have a folder trust another's authority for a party, unless it trusts one already."""
    if party not in tls.Trust.read(folder / "authority.pem").authorities:
        KeyFolder(folder).trust(party, other / "authorities" / f"{party}.pem")


def prepare_people(secrets: Path) -> None:
    """Draw the people's credentials, and write the issuer's list, unless there is one."""
    listed = secrets / "issuer" / "people.txt"
    if listed.exists():
        return
    drawn = {holder: draw_people(names) for holder, names in PEOPLE.items()}
    for holder, files in drawn.items():
        (secrets / holder).mkdir(exist_ok=True)
        (secrets / holder).chmod(_NO_LISTING)
        atomic_write(secrets / holder / "credentials.txt", files.credentials, _OWNER_ONLY)
    atomic_write(listed, b"".join(files.listed for files in drawn.values()), _OWNER_ONLY)


def _make_missing(folder: Path, names: Sequence[str], now: float) -> None:
    missing = [name for name in names if not (folder / name / f"{name}.pem").exists()]
    keys = KeyFolder(folder)
    if missing:
        keys.make(missing, (), now, shared=keys.is_shared)
    if all(map(keys.issues, names)):
        keys.renew(None, now)
    for each in (folder, *(folder / name for name in names)):
        each.chmod(_NO_LISTING)


def prepare_party(secrets: Path, state: Path, witness: str | None = None) -> None:
    """
    Create a party's state key, identity and operator token, and copy the last two to its secrets.

    With `witness`, the party's name, also creates its key as a witness, and copies the public part.

    Treats the state directory as untrusted: raises SettingsError for a link or a wrong file.
    """
    directory = StateDirectory.open(state, secrets / "state.key")
    identity = key_store.load_identity(directory).public_identity()
    token = directory.plain_secret("operator.token", access.OperatorToken.generate)
    access.OperatorToken(token)  # validates it: nothing else may leave the state directory
    atomic_write(secrets / "operator.token", token, _OWNER_ONLY)
    atomic_write(secrets / IDENTITY_FILE, identity.raw.hex().encode("ascii"), _PUBLIC)
    if witness is not None:
        _, key = witness_service.load_witness_key(directory, witness)
        atomic_write(secrets / WITNESS_FILE, key.to_text().encode("ascii"), _PUBLIC)


def main() -> None:
    """Prepare the mounted folders: all secrets, or one party's secrets and state."""
    parser = argparse.ArgumentParser(description="Create keys and certificates for containers.")
    parser.add_argument("target", choices=["certificates", "party"])
    parser.add_argument("--internal", action="store_true")
    parser.add_argument("--two-shufflers", action="store_true")
    parser.add_argument("--witness", choices=WITNESSES)
    arguments = parser.parse_args()
    try:
        if arguments.target == "party":
            prepare_party(_SECRETS, _STATE, arguments.witness)
            return
        if os.getuid() == 0:  # the folder and its files belong to the services' user
            os.chown(_SECRETS, USER, USER)
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
        prepare_certificates(
            _SECRETS,
            clock.SystemClock().now(),
            internal=arguments.internal,
            two_shufflers=arguments.two_shufflers,
        )
        prepare_people(_SECRETS)
    except (ShuffleDpError, OSError) as error:
        sys.exit(f"prepare: {error}")


if __name__ == "__main__":
    main()
