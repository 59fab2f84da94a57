"""`shuffledp sentinels`: an operator's test submissions."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from common.crypto.randomness import secure_generator
from common.task_digest import TaskDigest
from deploy.clients.analyzer import OperatorClient
from deploy.clients.base import read_authority
from deploy.commands.example import example
from deploy.commands.options import (
    AnalyzerAddress,
    AsJson,
    Authority,
    Certificate,
    CertificateKey,
    TokenFile,
    read_identity,
    task_digest,
)
from deploy.sentinels.journal import Planted, State
from deploy.sentinels.planting import Planting, shuffler_at
from deploy.terminal.console import terminal
from deploy.terminal.escape import shown
from deploy.terminal.json_output import dumps
from deploy.terminal.output_file import check_folder
from user_agent.credentials import TokenFile as UserTokens

app = typer.Typer()

_EXAMPLE: Final = example(
    "shuffledp sentinels plant --task DIGEST --count 300 --over 86400 --shuffler "
    "127.0.0.1:7002 --analyzer 127.0.0.1:7001 --token-file state/analyzer/operator.token "
    "--authority state/tls/authority.pem --output sentinels.jsonl",
)

sentinels_app = typer.Typer(
    help="Test submissions that the analyzer looks out for.",
    no_args_is_help=True,
    epilog=_EXAMPLE,
)
app.add_typer(sentinels_app, name="sentinels")


@sentinels_app.command(
    "plant",
    short_help="Send and register test submissions.",
    epilog=_EXAMPLE,
)
def plant(
    task: Annotated[str, typer.Option(help="The task's digest, 64 hexadecimal digits.")],
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many to send.")],
    shuffler: Annotated[str, typer.Option(help="Address of the shuffler, host:port.")],
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    output: Annotated[
        Path,
        typer.Option(
            help="Where to keep what they are; if it is there, go on where it stops. Never show it "
            "to the shuffler."
        ),
    ],
    over: Annotated[
        float, typer.Option(min=0.0, help="Seconds over which they are spread, at random.")
    ] = 0.0,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="Users' tokens, a line each, if the shuffler asks for them: the first COUNT are "
            "used, and nobody else is to have those."
        ),
    ] = None,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    analyzer_identity: Annotated[
        Path | None,
        typer.Option(help="Take a task only if it is signed by this: the analyzer's identity.pub."),
    ] = None,
    shuffler_identity: Annotated[
        Path | None,
        typer.Option(help="Take receipts only if signed by this: the shuffler's identity.pub."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Send test submissions through the shuffler, and register them with the analyzer.

    If it was interrupted, the same command goes on where it stopped: what the shuffler has not
    acknowledged is sent again, as it was.
    """
    digest = task_digest(task)
    check_folder(output)
    trusted = read_authority(authority) if authority else None
    signer = read_identity(analyzer_identity) if analyzer_identity else None
    acknowledger = read_identity(shuffler_identity) if shuffler_identity else None
    to_show = UserTokens(tokens, str(tokens)).tokens() if tokens else None

    planted: Sequence[Planted] = []

    async def run() -> None:
        nonlocal planted
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            planting = Planting(
                digest=digest,
                analyzer=operator,
                connect=lambda: shuffler_at(shuffler, trusted),
                kept=output,
                rng=secure_generator(),
                tokens=to_show,
                analyzer_identity=signer,
                shuffler_identity=acknowledger,
            )
            try:
                await planting.plant(count, over)
            finally:
                planted = planting.planted

    screen = terminal(stderr=True)
    screen.print(_begins(count, over), soft_wrap=True)
    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        screen.print(_interrupted(planted, count), soft_wrap=True)
        raise
    _tell(planted, digest, output, json=json)
    if any(one.state is not State.ACKNOWLEDGED for one in planted):
        raise typer.Exit(1)


def _begins(count: int, over: float) -> str:
    spread = f" over {over:g} seconds" if over else ""
    return f"Sending {count:,} sentinels{spread}. If it is interrupted, the same command goes on."


def _interrupted(planted: Sequence[Planted], count: int) -> str:
    known = sum(one.state is State.ACKNOWLEDGED for one in planted)
    return (
        f"Interrupted: {known:,} of {count:,} sentinels are acknowledged. The same command goes on "
        "where it stopped."
    )


def _tell(planted: Sequence[Planted], digest: TaskDigest, output: Path, *, json: bool) -> None:
    states = Counter(sentinel.state for sentinel in planted)
    reasons = Counter(one.reason for one in planted if one.state is State.REFUSED)
    left = len(planted) - states[State.ACKNOWLEDGED]
    if json:
        fields = {
            "task_digest": digest.hex(),
            "file": str(output),
            "sentinels": len(planted),
            **{state.value: states[state] for state in State if state is not State.PLANNED},
            "reasons": dict(reasons),
        }
        sys.stdout.write(dumps(fields) + "\n")
        return
    console = terminal()
    console.print(
        f"{states[State.ACKNOWLEDGED]} of {len(planted)} sentinels are acknowledged by the "
        f"shuffler, and the analyzer knows. {states[State.REFUSED]} were refused, "
        f"{states[State.UNKNOWN]} were not answered, and of {states[State.STORED]} the analyzer "
        "could not be told."
    )
    for reason, times in reasons.most_common():
        console.print(f"Refused {times} times: {shown(reason)}")
    if left:
        console.print("The same command sends again what is not acknowledged.")
