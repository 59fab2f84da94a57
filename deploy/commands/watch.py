"""Commands that watch the shuffler: receipt for a person, sentinels for an operator."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.errors import SettingsError
from common.randomness import secure_generator
from common.runtime.rpc import open_channel
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.commands.options import AnalyzerAddress, AsJson, Authority, TokenFile, hexadecimal
from deploy.commands.output import check_folder
from deploy.operator_client import OperatorClient
from deploy.person_client import ask_for_receipt
from deploy.result_json import dumps
from deploy.sentinels import Planting
from deploy.shuffler_operator import read_authority

app = typer.Typer()
sentinels_app = typer.Typer(
    help="Test submissions that the analyzer looks out for.", no_args_is_help=True
)
app.add_typer(sentinels_app, name="sentinels")

_MEANING = {
    "unchecked": "No proof has been seen yet: the batch has not been delivered, as a rule.",
    "counted": "The analyzer has signed for all its reports.",
    "missing": "The analyzer has signed for a batch without it. With the receipt this shows that "
    "the shuffler lost what it had acknowledged.",
    "sampled": "This task lets the shuffler drop reports: one answer cannot be checked.",
    "unproven": "Long after the deadline the shuffler has shown no proof: the batch expired, or "
    "it shows none.",
}


@app.command(
    epilog="Example: shuffledp receipt 5b1f… --agent unix:state/user_agent.sock",
)
def receipt(
    task: Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")],
    agent: Annotated[str, typer.Option(help="Address of your user agent: unix:PATH.")],
    person: Annotated[
        str, typer.Option(help="For whom, if the agent answers for several people.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Tell whether your answer arrived and was counted, and print the shuffler's receipt."""
    digest = TaskDigest(hexadecimal("the task's digest", task, DIGEST_BYTES))
    answer = asyncio.run(ask_for_receipt(agent, digest, person))
    if json:
        fields = {
            "task_digest": digest.hex(),
            "state": answer.state,
            "inclusion": answer.inclusion,
            "envelope_hash": answer.envelope_hash.hex(),
            "receipt": answer.receipt.hex(),
            "receipt_verified": answer.receipt_verified,
        }
        sys.stdout.write(dumps(fields) + "\n")
        return
    console = Console()
    console.print(f"Your answer: {answer.state}. Proof: {answer.inclusion}.")
    console.print(_MEANING.get(answer.inclusion, ""))
    if answer.receipt:
        verified = "verified" if answer.receipt_verified else "kept, no shuffler is pinned"
        console.print(f"Receipt ({verified}): {answer.receipt.hex()}")
        console.print(f"of the envelope with SHA-256 {answer.envelope_hash.hex()}")


@sentinels_app.command(
    "plant",
    epilog="Example: shuffledp sentinels plant --task 5b1f… --count 300 --over 86400 "
    "--shuffler 127.0.0.1:7002 --analyzer 127.0.0.1:7001 --token-file "
    "state/analyzer/operator.token --authority state/tls/authority.pem --output sentinels.json",
)
def plant(
    task: Annotated[str, typer.Option(help="The task's digest, 64 hexadecimal digits.")],
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many to send.")],
    shuffler: Annotated[str, typer.Option(help="Address of the shuffler, host:port.")],
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    output: Annotated[
        Path, typer.Option(help="Where to keep what they are. Never show it to the shuffler.")
    ],
    over: Annotated[
        float, typer.Option(min=0.0, help="Seconds over which they are spread, at random.")
    ] = 0.0,
    authority: Authority = None,
) -> None:
    """Send test submissions through the shuffler, and register them with the analyzer."""
    digest = TaskDigest(hexadecimal("the task's digest", task, DIGEST_BYTES))
    check_folder(output)
    if output.exists():
        raise SettingsError(f"{output} is there already; it may hold sentinels of another time")
    trusted = read_authority(authority) if authority else None

    async def run() -> None:
        async with OperatorClient.connect(analyzer, authority, token_file) as operator:
            planting = Planting(
                digest=digest,
                operator=operator,
                connect=lambda: open_channel(shuffler, "shuffler", trusted),
                kept=output,
                rng=secure_generator(),
            )
            await planting.plant(count, over)
        states = Counter(sentinel.state for sentinel in planting.planted)
        Console().print(
            f"{states['acknowledged']} of {count} sentinels are acknowledged by the shuffler, "
            f"{states['refused']} were refused, of {states['planned']} it is not known."
        )

    asyncio.run(run())
