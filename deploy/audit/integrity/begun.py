"""Tasks that a shuffler begins to collect for: of its analyzer, as asked for, within its limits."""

from typing import Final

import numpy as np

from common.crypto.signing import SigningIdentity
from common.errors import ProofError as SignatureError
from common.errors import TaskError
from common.task.task import Task
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.integrity.playthrough import refused, taken
from deploy.audit.integrity.shuffler_site import ShufflerSite
from deploy.audit.integrity.spool_file import rows
from deploy.audit.sample_task import sampling_task
from deploy.audit.stand_ins.still_clock import START

_COINS: Final = 20
_FAR_OFF: Final = 1e9
"""Seconds: long after every key has expired, and been kept for as long as it is."""


async def begun(task: Task, rng: np.random.Generator) -> Finding:
    """Give a shuffler tasks that it must refuse, and one that it collects for."""
    checks = Checks()
    large = sampling_task(dummies=_COINS, delta=0.1)
    most = large.expected_shuffler_dummies
    async with ShufflerSite.begun(rng) as site:
        async with site.shuffler() as shuffler:
            sender, other = [await site.publish(task, shuffler) for _ in range(2)]
            greedy, fetch = await site.publish(large, shuffler), shuffler.collection.fetch_task
            signed = await site.analyzer.get_task(sender.digest)
            stranger = SigningIdentity.generate().sign(signed.task_bytes)
            for words, given in (
                ("that a stranger has signed", stranger),
                ("in the place of the one that is asked for", await fetch(other.digest)),
            ):
                site.inbox.gives = given
                checks.must(
                    f"no task is collected for {words}",
                    await refused(fetch(sender.digest), SignatureError),
                )
            site.inbox.gives = None
        async with site.shuffler(most_dummies=most - 1) as shuffler:
            checks.must(
                "none is that asks for more dummies than the shuffler makes",
                await refused(shuffler.collection.fetch_task(greedy.digest), TaskError),
            )
            count = rows(site.spool, "SELECT COUNT(*) FROM batches")
            checks.must("nothing is begun for a task that is refused", count == [(1,)])
        both = max(most, task.expected_shuffler_dummies)
        async with site.shuffler(most_dummies=both) as shuffler:
            for digest in (sender.digest, greedy.digest):
                asking = shuffler.collection.fetch_task(digest)
                checks.must("a task as it must be is collected for", await taken(asking))
            needed = shuffler.rounds.needed_keys()
            for times in (1, 2, 3):  # another is announced, takes its place, and it is destroyed
                shuffler.keys.rotate(START + times * _FAR_OFF, needed)
            submitting = shuffler.collection.submit(sender.digest, sender.envelope())
            checks.must(
                "the key of a batch that collects is kept, however old it is",
                await taken(submitting),
            )
    return checks.finding(
        scenario="thresholds",
        title="tasks of another signer, under another digest, and with too many dummies",
        heading="correctness",
        coalition="nobody",
        sentence="The shuffler collects for tasks that its analyzer has signed, under the digest "
        "that was asked for, and with no more dummies than its operator allows; and the key that "
        "their submissions are sealed to is kept while it does.",
    )
