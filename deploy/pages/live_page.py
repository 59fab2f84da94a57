"""The page that the shuffler's operator watches a batch on: it asks its own server, nobody else."""

from common.task_digest import TaskDigest
from deploy.pages.page import render


def live_page(digest: TaskDigest, *, version: str, poll_seconds: float) -> str:
    """
    Make the page. What it shows it asks for, at `progress.json` beside it.

    Args:
        digest: Of the task whose batch is watched.
        version: Of this program.
        poll_seconds: Between two questions.
    """
    return render(
        "live.html",
        version=version,
        styles=("live.css",),
        scripts=("live.js",),
        data={"poll_seconds": poll_seconds},
        asks_its_server=True,
        title="The batch, live",
        digest=digest.hex(),
    )
