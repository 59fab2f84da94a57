"""Options that several commands share, and how their text is read."""

from pathlib import Path
from typing import Annotated

import typer

from common.crypto.signing import PublicIdentity
from common.errors import SettingsError, WireError
from common.task_digest import DIGEST_BYTES, TaskDigest

AnalyzerAddress = Annotated[str, typer.Option(help="Address of the analyzer, host:port.")]
ShufflerAddress = Annotated[str, typer.Option(help="Address of the shuffler, host:port.")]
TaskArgument = Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")]
AgentAddress = Annotated[str, typer.Option(help="Address of your user agent: unix:PATH.")]
Person = Annotated[str, typer.Option(help="For whom, if the agent answers for several people.")]
TokenFile = Annotated[
    Path,
    typer.Option(help="The operator's token: operator.token in the service's state directory."),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        help="The certificate of the authority to trust, a .pem file. Without it: no encryption, "
        "and only services on this machine."
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(help="Your certificate. Without it: operator.pem beside the authority."),
]
CertificateKey = Annotated[
    Path | None, typer.Option("--key", help="Its key. Without it: operator.key there.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def hexadecimal(name: str, text: str, length: int) -> bytes:
    """
    Read an option that is so many bytes in hexadecimal digits.

    Raises:
        WireError: It is not.
    """
    try:
        value = bytes.fromhex(text)
    except ValueError as error:
        raise WireError(f"{name} must be {2 * length} hexadecimal digits") from error
    if len(value) != length:
        raise WireError(f"{name} has {len(text)} digits; it must have {2 * length}")
    return value


def task_digest(text: str) -> TaskDigest:
    """
    Parse a task's digest.

    Raises:
        WireError: It is not 64 hexadecimal digits, whichever party is asked.
    """
    return TaskDigest(hexadecimal("the task's digest", text, DIGEST_BYTES))


def read_identity(file: Path) -> PublicIdentity:
    """
    Read a party's identity.pub.

    Raises:
        SettingsError: The file cannot be read.
        WireError: It does not hold an identity.
    """
    try:
        return PublicIdentity.from_hex(
            file.read_text(encoding="ascii").strip(), f"what {file} holds"
        )
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WireError(f"{file} does not hold an identity") from error
