"""Options that several commands share, and how their text is read."""

from pathlib import Path
from typing import Annotated

import typer

from common.errors import KeyFormatError

AnalyzerAddress = Annotated[str, typer.Option(help="Address of the analyzer, host:port.")]
TokenFile = Annotated[Path, typer.Option(help="The operator's token: STATE/operator.token.")]
Authority = Annotated[
    Path | None,
    typer.Option(help="PEM file of the authority to trust. Without it: plaintext, loopback only."),
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
        KeyFormatError: It is not.
    """
    try:
        value = bytes.fromhex(text)
    except ValueError as error:
        raise KeyFormatError(f"{name} must be {2 * length} hexadecimal digits") from error
    if len(value) != length:
        raise KeyFormatError(f"{name} has {len(text)} digits; it must have {2 * length}")
    return value
