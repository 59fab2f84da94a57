"""What tests do with services that run as child processes."""

import time
from typing import Any

from common.crypto.signing import SignedTask
from common.task.draft import TaskDraft
from deploy.clients.local_cluster import Cluster


async def publish(cluster: Cluster, n_users: int, **changes: Any) -> SignedTask:
    """Publish a task that closes at n_users and not before."""
    fields: dict[str, Any] = {
        "domain_size": 50,
        "buckets": 7,
        "dummies_per_user": 1,
        "local_epsilon": 4.0,
        "delta": 1e-6,
        "n_min": n_users,
        "target_size": n_users,
        "deadline": int(time.time()) + 3600,
        "shuffler_key": cluster.shuffler_key,
    }
    async with cluster.operator() as operator:
        return await operator.create_task(TaskDraft(**fields | changes))
