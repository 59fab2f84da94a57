"""Seal a task's reports: to the analyzer, and then a layer for each further shuffler."""

from common.crypto.hpke import HpkePublicKey, Sealer, layer_context, report_context
from common.task.task import Task
from common.task_digest import TaskDigest


def report_sealer(task: Task, digest: TaskDigest, hop: int = 1) -> Sealer:
    """
    Return the function that seals a report for the shuffler at a place of the task's chain.

    Devices and the first shuffler seal for hop 1, the relay for hop 2; beyond the last shuffler,
    reports are sealed to the analyzer alone. Raises WireError for an invalid public key.

    Cost: about 0.1 ms per layer.
    """
    seals = [HpkePublicKey(task.suite, task.analyzer_key).sealer(report_context(digest))]
    for place in range(len(task.shufflers) - 1, hop - 1, -1):
        key = HpkePublicKey(task.suite, task.shufflers[place].key)
        seals.append(key.sealer(layer_context(digest, place)))

    def seal(report: bytes) -> bytes:
        for each in seals:
            report = each(report)
        return report

    return seal
