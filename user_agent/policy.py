"""What the device refuses, whatever the operator signed. Pure."""

from dataclasses import dataclass

from common.errors import PolicyError, SignatureError
from common.mechanisms.catalogue import mechanism_of
from common.signing import PublicIdentity, SignedTask
from common.task import Task
from common.task_digest import TaskDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The person's own limits."""

    identity: PublicIdentity
    """The analyzer that this device has pinned."""
    local_epsilon_cap: float
    """The most that one answer may give away if nobody else is honest. Infinite: anything, so that
    tasks without local noise are answered too."""


def check(signed: SignedTask, digest: TaskDigest, policy: Policy, now: float) -> Task:
    """
    Read a task and decide whether this device answers it. Run by the user agent.

    The claimed local ε is not believed: the task's integer weights are compared with it in exact
    arithmetic.

    Raises:
        PolicyError: Its deadline has passed, its local ε is over the cap, or its weights do not
            keep the claim.
        SignatureError: It is not the task that was asked for, or the pinned identity did not sign
            it.
        TaskError: It is not a valid task.
    """
    if signed.digest() != digest:
        raise SignatureError("the shuffler gave another task than the one that was asked for")
    policy.identity.verify(signed)
    task = Task.from_bytes(signed.task_bytes)
    if now >= task.deadline:
        raise PolicyError("the task's deadline has passed")
    if task.local_epsilon > policy.local_epsilon_cap:
        raise PolicyError(
            f"the task's local epsilon is {task.local_epsilon}; "
            f"this device answers up to {policy.local_epsilon_cap}"
        )
    if not mechanism_of(task).weights.keeps_promise(task.local_epsilon):
        raise PolicyError(
            f"the task's weights do not keep its claim of local epsilon {task.local_epsilon}"
        )
    return task
