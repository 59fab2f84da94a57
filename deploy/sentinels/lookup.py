"""Look sentinels up in the batch that left the first shuffler, as devices look up their answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from common.crypto.signing import PublicIdentity
from common.errors import SettingsError
from common.messages.inclusion_proof import split
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.sentinels.sentinel_file import PlantedSentinel
from user_agent.clients import Shuffler
from user_agent.inclusion_monitor import is_included


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Which of a task's sentinels the party after the first shuffler signed for."""

    signer: str
    """That party: the analyzer, or the relay of a task with two shufflers."""
    checked: int
    """Number of sentinels that the first shuffler acknowledged."""
    missing: Sequence[int]
    """Numbers, in the file, of those that are not in the batch: the first shuffler lost them."""


async def look_up(
    shuffler: Shuffler,
    digest: TaskDigest,
    sentinels: Sequence[PlantedSentinel],
    analyzer_identity: PublicIdentity,
    relay_identity: PublicIdentity | None,
) -> Lookup:
    """
    Look every acknowledged sentinel up. Nobody's privacy depends on a sentinel's reports.

    What is inside their layers is not asked for: the analyzer, who knows it, matches it itself.

    Raises SettingsError without a second shuffler's identity, ProofError for an invalid proof, and
    PeerError or PeerRefusalError, also before the delivery and where the shuffler samples.
    """
    task = Task.verified(await shuffler.fetch_task(digest), digest, analyzer_identity)
    signer = relay_identity if task.relay else analyzer_identity
    if signer is None:
        raise SettingsError(f"give the identity of {task.shufflers[-1].name}, the second shuffler")
    commitment = (await shuffler.inclusion(digest, None)).commitment
    commitment.verify(signer, digest, task.most_leaves)
    stored = [number for number, sentinel in enumerate(sentinels) if sentinel.receipt]
    missing = []
    for number in stored:
        leaves = split(sentinels[number].layers or sentinels[number].leaves)
        if not all([await is_included(shuffler, leaf, commitment, signer) for leaf in leaves]):
            missing.append(number)
    named = "relay" if task.relay else "analyzer"
    return Lookup(signer=named, checked=len(stored), missing=missing)


def show(found: Lookup, console: Console) -> None:
    """Print what passed the first shuffler, and who lost the rest."""
    two = found.signer == "relay"
    signer, loser = ("second shuffler", "first shuffler") if two else ("analyzer", "shuffler")
    arrived = found.checked - len(found.missing)
    console.print(
        f"{arrived} of {found.checked} acknowledged sentinels are in the batch that the {signer} "
        "signed for."
    )
    if found.missing:
        numbers = ", ".join(map(str, found.missing))
        console.print(f"The {loser} lost the others, in the file's order from 0: {numbers}.")
    if two and arrived:
        console.print(
            "Any of those that the analyzer misses (see result --json; in quarantine, task show) "
            "the second shuffler lost; or the analyzer, if the second one logged that it signed "
            "other reports than were sent."
        )
