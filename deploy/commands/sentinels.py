"""`shuffledp sentinels`: an operator's test submissions."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import terminal
from shuffledp.deploy.terminal.files import in_folder

_EXAMPLE: Final = (
    "shuffledp sentinels plant --task DIGEST --count 300 --over 86400 --output sentinels.jsonl"
)

app = options.command_group(
    "sentinels", "Send test submissions that the analyzer recognizes.", _EXAMPLE
)


@options.command(app, _EXAMPLE, name="plant", short_help="Send and register test submissions.")
def plant_sentinels(
    task: options.TaskOption,
    count: Annotated[int, typer.Option(min=1, max=10_000)],
    connections: options.Connections,
    output: Annotated[Path, typer.Option(callback=in_folder)],
    over: Annotated[float, typer.Option(min=0.0)] = 0.0,
    tokens: Path | None = None,
    analyzer_identity: Path | None = None,
    shuffler_identity: Path | None = None,
) -> options.Printed:
    """
    Register test submissions with the analyzer, and send them through the shuffler.

    After an interruption, run the same command again: it resends, byte for byte, every sentinel
    that the shuffler has not acknowledged.

    Options:
        count: Number of sentinels to send.
        output: File that records the sentinels; an existing file is continued. Never show it to the
            shuffler.
        over: Seconds over which to send them, at random times.
        tokens: File of tokens from `shuffledp issuer tokens`, if the task requires them. Uses the
            first COUNT, which must be of people who do not take part.
        analyzer_identity: The analyzer's identity.pub, to verify the signature.  [the profile's]
        shuffler_identity: The shuffler's identity.pub, to verify receipts.  [the profile's]
    """
    from shuffledp.common.crypto.randomness import secure_generator
    from shuffledp.deploy.clients.issuer import read_tokens
    from shuffledp.deploy.sentinels import planting, sentinel_file

    typed = {"analyzer_identity": analyzer_identity, "shuffler_identity": shuffler_identity}
    files = [connections.file(name, file) for name, file in typed.items()]
    signer, acknowledger = (options.read_identity(file) if file else None for file in files)
    spent = read_tokens(tokens) if tokens else None

    async def plant() -> Sequence[sentinel_file.PlantedSentinel]:
        async with connections.analyzer() as operator:
            run = planting.SentinelRun(
                digest=task,
                analyzer=operator,
                connect=connections.device,
                file=output,
                rng=secure_generator(),
                tokens=spent,
                analyzer_identity=signer,
                shuffler_identity=acknowledger,
            )
            return await run.plant(count, over)

    spread = f" over {over:g} seconds" if over else ""
    terminal(stderr=True).print(
        f"Sentinels to register, and then to send{spread}: {count:,}. After an interruption, run "
        "the same command again."
    )
    sentinels = asyncio.run(plant())
    failed = any(sent.state is not sentinel_file.SentinelState.ACKNOWLEDGED for sent in sentinels)
    return *planting.report(sentinels, task, output), failed


_CHECK: Final = (
    "shuffledp sentinels check --task DIGEST --input sentinels.jsonl --analyzer-identity "
    "analyzer.pub"
)


@options.command(app, _CHECK, name="check", short_help="Look test submissions up after delivery.")
def check_sentinels(
    task: options.TaskOption,
    connections: options.Connections,
    file: Annotated[Path, typer.Option("--input", exists=True, dir_okay=False)],
    analyzer_identity: Path | None = None,
    relay_identity: Path | None = None,
) -> options.Printed:
    """
    Show which sentinels left the first shuffler, once the batch is delivered, and who lost others.

    Options:
        file: File from `shuffledp sentinels plant`.
        analyzer_identity: The analyzer's identity.pub.  [the profile's]
        relay_identity: The identity.pub of the second shuffler, if the task has two.
    """
    from shuffledp.deploy.sentinels import planting, sentinel_file

    signer = options.read_identity(connections.needed_file("analyzer_identity", analyzer_identity))
    second = options.read_identity(relay_identity) if relay_identity else None
    with sentinel_file.SentinelFile.opened(file, task) as opened:
        sentinels = opened.sentinels
    found = options.ask(
        connections.device, lambda first: planting.look_up(first, task, sentinels, signer, second)
    )
    fields = {"task_digest": task.hex(), **asdict(found)}
    return fields, partial(planting.show, found), bool(found.missing)
