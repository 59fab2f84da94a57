"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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
