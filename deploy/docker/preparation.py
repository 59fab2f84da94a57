"""
Makes what the containers need before their first start; what is there already stays.

    SECRETS/authority.pem, authority.key          the authority; its key is given to no service
    SECRETS/PARTY/PARTY.pem, PARTY.key            of analyzer, shuffler and operator
    SECRETS/PARTY/state.key                       what the party's state is sealed under
    SECRETS/operator/analyzer.token, shuffler.token
    SECRETS/identities.env                        what others pin, for compose

A secret of a container is the file itself, with its owner and mode, so these belong to the user
that services run as. Run in the operator's image by `make up`.
"""

import os
import sys
from pathlib import Path
from typing import Final

from common.errors import ShuffleDpError
from common.operator_token import OperatorToken
from common.runtime.clock import SystemClock
from common.runtime.identity import load_identity
from common.runtime.state import StateDirectory, write_whole
from deploy.key_folder import KeyFolder

USER: Final = 10001
"""That services run as, in every image."""
PARTIES: Final = ("analyzer", "shuffler")
"""Who keep private keys, and so have an identity, a state key and an operator's token."""

_CERTIFIED: Final = (*PARTIES, "operator")
_PASSED_THROUGH: Final = 0o711
"""Of folders: the engine may find a file by its name, and nobody may list them."""
_OWNER_ONLY: Final = 0o600
_PUBLIC: Final = 0o644


def prepare(secrets: Path, states: Path, now: float) -> dict[str, str]:
    """
    Make certificates, state keys, identities and operators' tokens.

    Args:
        secrets: The folder of secrets; it is there.
        states: A folder with one for each of `PARTIES`: its volume.
        now: Seconds since 1970 UTC.

    Returns:
        The variables of identities.env.

    Raises:
        SettingsError: A file cannot be made, or does not fit the others.
    """
    missing = [who for who in _CERTIFIED if not (secrets / who / f"{who}.pem").exists()]
    if missing:
        KeyFolder(secrets).make(missing, (), now)
    variables = {}
    for party in PARTIES:
        state = StateDirectory.open(states / party / "state", secrets / party / "state.key")
        identity = load_identity(state).public_identity()
        variables[f"SHUFFLEDP_{party.upper()}_IDENTITY"] = identity.raw.hex()
        token = state.plain_secret("operator.token", OperatorToken.generate)
        write_whole(secrets / "operator" / f"{party}.token", token, _OWNER_ONLY)
    for folder in (secrets, *(secrets / who for who in _CERTIFIED)):
        folder.chmod(_PASSED_THROUGH)
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    write_whole(secrets / "identities.env", lines.encode("ascii"), _PUBLIC)
    return variables


def _become_user(folder: Path) -> None:
    """As root in the container: give away the folder that the machine's own user made, and root."""
    os.chown(folder, USER, USER)
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


def main() -> None:
    """Prepare /secrets and /state."""
    secrets = Path("/secrets")
    try:
        if os.getuid() == 0:
            _become_user(secrets)
        prepare(secrets, Path("/state"), SystemClock().now())
    except (ShuffleDpError, OSError) as error:
        sys.exit(f"prepare: {error}")


if __name__ == "__main__":
    main()
