"""From what a task says of its mechanism to the mechanism, and from a wish to what a task says."""

from common.errors import TaskError
from common.mechanism_spec import MechanismSpec
from common.mechanisms.grr import Grr
from common.mechanisms.hash_family import HashFamily
from common.mechanisms.local_hashing import REPORT_DTYPE as HASHED_REPORT
from common.mechanisms.local_hashing import LocalHashing, family_for
from common.mechanisms.mechanism import Mechanism
from common.mechanisms.response_weights import ResponseWeights
from common.plain_report import PLAIN_REPORT
from common.protocols import MechanismName
from common.task import Task


def specify(
    name: MechanismName, *, domain_size: int, buckets: int, local_epsilon: float
) -> MechanismSpec:
    """
    Work out the integers of a mechanism. Run by the analyzer when it drafts a task.

    Args:
        name: Of the mechanism.
        domain_size: Items, at least 2.
        buckets: A prime below domain_size, for hashing; GRR has as many as items.
        local_epsilon: Above 0 and at most 20, or infinite for reports without noise.

    Raises:
        TaskError: local_epsilon is out of range, or buckets do not fit the domain.
    """
    weights = ResponseWeights.for_epsilon(local_epsilon)
    if name == "grr":
        answers, digits, dtype = domain_size, 1, PLAIN_REPORT
    else:
        answers, digits, dtype = buckets, family_for(domain_size, buckets).t, HASHED_REPORT
    return MechanismSpec(
        name=name,
        buckets=answers,
        digits=digits,
        true_weight=weights.true,
        other_weight=weights.other,
        report_bytes=dtype.itemsize,
    )


def mechanism_of(task: Task) -> Mechanism:
    """
    Build a task's mechanism. Run by the user agent and by the analyzer.

    Raises:
        TaskError: The task's integers do not describe a mechanism that this program knows.
    """
    spec = task.mechanism
    weights = ResponseWeights(true=spec.true_weight, other=spec.other_weight)
    mechanism: Mechanism
    if spec.name == "grr":
        mechanism = Grr(task.domain_size, weights)
    else:
        family = HashFamily.holding(task.domain_size, spec.buckets, spec.digits)
        mechanism = LocalHashing(task.domain_size, family, weights, task.nonce)
    if mechanism.report_dtype.itemsize != spec.report_bytes:
        raise TaskError(
            f"report_bytes is {spec.report_bytes}; a report of this mechanism has "
            f"{mechanism.report_dtype.itemsize}"
        )
    return mechanism
