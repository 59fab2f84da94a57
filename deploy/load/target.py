"""What is loaded: running services, services of this machine's own, or a sink."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from common.crypto.signing import SignedTask
from common.errors import PeerError
from common.runtime.rpc import open_channel
from common.task.draft import TaskDraft
from common.task_digest import TaskDigest
from deploy.clients.analyzer import OperatorClient
from deploy.clients.local_cluster import Cluster
from deploy.clients.shuffler import ShufflerClient
from deploy.load.connection import Destination
from deploy.load.sink import publish_for_nobody, sink
from deploy.load.usage import Source, local_source
from deploy.tasks import drafts as draft_file
from deploy.tasks.demo_task import demo_draft
from user_agent.policy import authentic
from user_agent.shuffler_client import DeviceClient

TargetKind = Literal["services", "local", "sink"]

_DAY: Final = 24 * 3600
_START_SECONDS: Final = 10.0
"""For which the shuffler, or the analyzer behind it, may be starting again."""
_PAUSE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Services under load, and what may be asked of them."""

    kind: TargetKind
    to: Destination
    signed: SignedTask
    source: Source | None = None
    """Of what its processes take."""
    parties: tuple[str, ...] = ()
    """Whose pages of metrics it asks for: one that never came is told."""
    operator: OperatorClient | None = None
    """Of the analyzer, who may read the result."""
    shuffler: ShufflerClient | None = None
    """With its operator's token, who may close the batch and sees what it refused."""


async def fetch(to: Destination, digest: TaskDigest) -> SignedTask:
    """
    Fetch a task through the shuffler, as devices do.

    Raises:
        PeerError: Nobody answers, for longer than a service takes to start again.
        PeerRefusalError: There is no such task.
        ProofError: It gave another one.
    """
    give_up = time.monotonic() + _START_SECONDS
    while True:
        try:
            async with open_channel(to.address, "shuffler", to.authority) as channel:
                signed = await DeviceClient(channel).fetch_task(digest)
        except PeerError:
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            authentic(signed, digest, None)
            return signed


def wanted(
    draft: Path | None, domain_size: int, n_stored: int, *, ends_early: bool, key: bytes
) -> TaskDraft:
    """
    Give the draft of a task that closes with the last simulated user.

    Args:
        draft: A TOML file; None for the demo's parameters.
        domain_size: Items, where there is no file.
        n_stored: Users who must be stored.
        ends_early: The run may end before the last one: then the batch is closed as it is.
        key: The shuffler's.
    """
    found = (
        draft_file.read(draft, key)
        if draft is not None
        else demo_draft(domain_size, n_stored, now=time.time(), shuffler_key=key)
    )
    return replace(
        found,
        n_min=1 if ends_early else min(found.n_min, n_stored),
        target_size=n_stored,
        deadline=int(time.time()) + _DAY,
    )


@asynccontextmanager
async def local(directory: Path, draft_with: Callable[[bytes], TaskDraft]) -> AsyncIterator[Target]:
    """Start the three services on this machine, and publish a task."""
    async with (
        Cluster(directory) as cluster,
        serving(cluster, draft_with(cluster.shuffler_key)) as target,
    ):
        yield target


@asynccontextmanager
async def serving(cluster: Cluster, draft: TaskDraft) -> AsyncIterator[Target]:
    """Publish a task at services that run on this machine."""
    token = cluster.shuffler.state / "operator.token"
    async with (
        cluster.operator() as operator,
        ShufflerClient.connect(cluster.shuffler.address, cluster.authority, token) as shuffler,
    ):
        signed = await operator.create_task(draft)
        yield Target(
            kind="local",
            to=Destination(
                address=cluster.shuffler.address, authority=cluster.authority.read_bytes()
            ),
            signed=signed,
            source=local_source(
                lambda: {
                    "shuffler": [cluster.shuffler.process.pid],
                    "analyzer": [cluster.analyzer.process.pid],
                }
            ),
            operator=operator,
            shuffler=shuffler,
        )


@asynccontextmanager
async def nobody(signed: SignedTask) -> AsyncIterator[Target]:
    """Start a sink for a task."""
    with sink(signed) as (to, pid):
        yield Target(
            kind="sink", to=to, signed=signed, source=local_source(lambda: {"sink": [pid]})
        )


def for_nobody(draft_with: Callable[[bytes], TaskDraft]) -> SignedTask:
    """Make a task for a sink; the key in the draft is replaced by one that nobody keeps."""
    return publish_for_nobody(draft_with(bytes(32)))
