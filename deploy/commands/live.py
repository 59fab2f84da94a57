"""`shuffledp live`: progress of a batch, for the shuffler's operator."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, Final

import typer

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import private_opener, terminal

app = typer.Typer()

_POLL_SECONDS: Final = 2.0
"""Interval at which this command polls the shuffler, and at which a page polls this command."""


@options.command(app, "shuffledp live DIGEST")
def live(
    task: options.TaskArgument,
    connections: options.Connections,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    open_it: options.OpenPage = False,
) -> None:
    """
    Serve a page with the progress of a batch to this machine only, until Ctrl-C.

    Shows users so far, a forecast for n_min, and refused submissions, once a device has fetched the
    task. Needs the shuffler's operator token. The growing count reveals when submissions arrive: do
    not show the page to the analyzer's operator.

    Options:
        port: Local port; 0: any free port.
    """
    from shuffledp.common.task.task import Task
    from shuffledp.deploy.pages import live_feed, live_server

    async def watch(show: Callable[[str], bool] | None) -> None:
        async with connections.shuffler() as client:
            # Ask once before serving the page: a wrong address, token or digest fails here.
            progress = await client.progress(task)
            async with connections.device() as device:
                asked = Task.verified(await device.fetch_task(task), task, None)
            feed = live_feed.LiveFeed(SystemClock(), progress, asked)
            page = live_feed.live_page(task, poll_seconds=_POLL_SECONDS, task=asked).encode()
            pages, secret = live_server.live_pages(page, feed), secrets.token_urlsafe(16)
            async with live_server.page_server(pages, secret, port) as address:
                terminal().print(f"The page is at {address}\nPress Ctrl-C to stop.", soft_wrap=True)
                if show is not None:
                    show(address)
                while True:
                    await asyncio.sleep(_POLL_SECONDS)
                    try:
                        feed.take(await client.progress(task))
                    except ShuffleDpError as error:
                        feed.take_error(error)

    with ExitStack() as ended:
        asyncio.run(watch(ended.enter_context(private_opener()) if open_it else None))
