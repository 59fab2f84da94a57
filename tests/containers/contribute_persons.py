"""
Contribute through the user agent's socket; runs in the load generator's container.

Usage: python3 - unix:SOCKET DIGEST VALUE...    one value for each person, from person 0
"""

import asyncio
import json
import sys

from common.errors import PeerError
from common.task_digest import TaskDigest
from deploy.clients.user_agent import send

_PATIENCE = 240.0
_PAUSE = 0.25


async def contribute(agent: str, digest: TaskDigest, values: list[int]) -> None:
    """Contribute for each person until it succeeds; print whether each had answered before."""
    repeated = []
    async with asyncio.timeout(_PATIENCE):
        for person, value in enumerate(values):
            while True:
                try:
                    receipt = await send(agent, digest, value, f"person {person}")
                except PeerError:
                    await asyncio.sleep(_PAUSE)
                else:
                    repeated.append(receipt.repeated)
                    break
    sys.stdout.write(json.dumps(repeated) + "\n")


if __name__ == "__main__":
    where, named, *numbers = sys.argv[1:]
    task = TaskDigest(bytes.fromhex(named))
    asyncio.run(contribute(where, task, [int(number) for number in numbers]))
