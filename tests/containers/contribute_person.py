"""
Contribute through the user agent's socket; runs in the load generator's container.

Usage: python3 - unix:SOCKET DIGEST PERSON VALUE
"""

import asyncio
import json
import sys

from shuffledp.common.errors import PeerError
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.user_agent import send

_PATIENCE = 240.0
_PAUSE = 0.25


async def contribute(agent: str, digest: TaskDigest, person: str, value: int) -> None:
    """Contribute for a person until it succeeds; print whether they had answered before."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                receipt = await send(agent, digest, value, person)
            except PeerError:
                await asyncio.sleep(_PAUSE)
            else:
                break
    sys.stdout.write(json.dumps(receipt.repeated) + "\n")


if __name__ == "__main__":
    where, task, who, number = sys.argv[1:]
    asyncio.run(contribute(where, TaskDigest(bytes.fromhex(task)), who, int(number)))
