"""`shuffledp live`: the shuffler's operator watches a batch being collected."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Annotated

import typer

from common.errors import CredentialError, PeerError, PeerRefusalError
from common.runtime.clock import SystemClock
from common.task_digest import TaskDigest
from common.version import VERSION
from deploy.clients.shuffler import ShufflerClient
from deploy.commands.example import AT_SHUFFLER, example
from deploy.commands.options import Authority, ShufflerAddress, TaskArgument, TokenFile, task_digest
from deploy.pages.live_server import serve_live_page
from deploy.terminal.console import private_opener, terminal

app = typer.Typer()


@app.command(
    epilog=example(f"shuffledp live DIGEST {AT_SHUFFLER}"),
)
def live(
    task: TaskArgument,
    shuffler: ShufflerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of this machine; 0 takes a free one.")
    ] = 0,
    open_it: Annotated[
        bool,
        typer.Option("--open", help="Open the page in this machine's browser, too."),
    ] = False,
) -> None:
    """Serve a page, to this machine alone, that shows how far a batch is. Ctrl-C ends it.

    Users so far, a forecast for n_min, and refused submissions. Needs the token of the shuffler's
    operator. How a count grows tells when each submission came: do not show the page to the
    analyzer's operator.
    """
    digest = task_digest(task)
    console = terminal()

    async def serve(show: Callable[[str], bool] | None) -> None:
        def started(address: str) -> None:
            console.print(f"The page is at {address}", soft_wrap=True)
            if show is not None:
                show(address)

        async with ShufflerClient.connect(shuffler, authority, token_file) as client:
            await _check_token(client, digest)
            await serve_live_page(
                lambda: client.progress(digest),
                digest=digest,
                clock=SystemClock(),
                secret=secrets.token_urlsafe(16),
                version=VERSION,
                started=started,
                port=port,
            )

    with ExitStack() as ended:
        asyncio.run(serve(ended.enter_context(private_opener()) if open_it else None))


async def _check_token(client: ShufflerClient, digest: TaskDigest) -> None:
    """Ask once, so that a wrong token fails here; the page shows other errors."""
    try:
        with suppress(PeerError):
            await client.progress(digest)
    except PeerRefusalError as error:
        if error.status == CredentialError.status:
            raise
