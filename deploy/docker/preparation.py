"""
Make the keys that containers need before their first start; existing ones stay.

    SECRETS/authority.pem, authority.key          the authority; its key is given to no service
    SECRETS/PARTY/PARTY.pem, PARTY.key            of analyzer, shuffler and operator
    SECRETS/PARTY/state.key                       seals the party's state
    SECRETS/PARTY/operator.token, identity.pub    for the operator, and for pinning the party

A container's secret is the file itself, with its owner and mode, so these belong to the user that
services run as. Run in the operator's image by `make up`: certificates in a container that sees no
volume, then each party's keys in one that sees its own volume and folder of secrets alone: links
that a compromised service leaves in its volume lead to no other party's secrets.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from common.errors import ShuffleDpError
from common.runtime.access import OperatorToken
from common.runtime.clock import SystemClock
from common.runtime.key_store import load_identity
from common.runtime.state_directory import StateDirectory, atomic_write
from deploy.clients.key_folder import KeyFolder

USER: Final = 10001
"""User id of services, in every image."""
PARTIES: Final = ("analyzer", "shuffler")
"""Parties with an identity, a state key and an operator's token."""
IDENTITY_FILE: Final = "identity.pub"
"""In a party's folder: 64 hexadecimal digits."""

_CERTIFIED: Final = (*PARTIES, "operator")
_PASSED_THROUGH: Final = 0o711
"""Mode of folders: the engine finds a file by its name; listing is forbidden."""
_OWNER_ONLY: Final = 0o600
_PUBLIC: Final = 0o644

_SECRETS: Final = Path("/secrets")
_STATE: Final = Path("/var/lib/shuffledp/state")


def prepare_certificates(secrets: Path, now: float) -> None:
    """
    Make an authority, and certificates of analyzer, shuffler and operator, in an existing folder.

    Raises SettingsError if a file cannot be made, or does not fit the others.
    """
    missing = [who for who in _CERTIFIED if not (secrets / who / f"{who}.pem").exists()]
    if missing:
        KeyFolder(secrets).make(missing, (), now)
    for folder in (secrets, *(secrets / who for who in _CERTIFIED)):
        folder.chmod(_PASSED_THROUGH)


def prepare_party(secrets: Path, state: Path) -> None:
    """
    Make a party's state key, identity and operator's token, and hand out the last two.

    Does not trust the content of its state directory. Raises SettingsError if a file cannot be
    made, does not fit the others, or is a link.
    """
    directory = StateDirectory.open(state, secrets / "state.key")
    identity = load_identity(directory).public_identity()
    token = directory.plain_secret("operator.token", OperatorToken.generate)
    OperatorToken(token)  # nothing else is handed out
    atomic_write(secrets / "operator.token", token, _OWNER_ONLY)
    atomic_write(secrets / IDENTITY_FILE, identity.raw.hex().encode("ascii"), _PUBLIC)


def main() -> None:
    """Prepare the mounted folders: all of /secrets, or a party's folder of it and its volume."""
    parser = argparse.ArgumentParser(description="Prepares containers before they start.")
    parser.add_argument("what", choices=["certificates", "party"])
    try:
        if parser.parse_args().what == "party":
            prepare_party(_SECRETS, _STATE)
            return
        if os.getuid() == 0:  # the folder and its files belong to the services' user
            os.chown(_SECRETS, USER, USER)
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
        prepare_certificates(_SECRETS, SystemClock().now())
    except (ShuffleDpError, OSError) as error:
        sys.exit(f"prepare: {error}")


if __name__ == "__main__":
    main()
