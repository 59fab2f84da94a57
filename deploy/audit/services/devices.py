"""What a device refuses, whatever an analyzer signed and a shuffler hands on: tried, not read."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from common.accounting.composition import MIN_COMPOSED_DELTA
from common.crypto.signing import SigningIdentity
from common.errors import BudgetError, PolicyError, TaskError
from common.errors import ProofError as SignatureError
from common.task.task import Task
from deploy.audit.services.facts import Fact
from deploy.audit.stand_ins.small_device import SmallDevice, central_too_low, local_too_low

_SURE: Final = 0.9


async def refusals(folder: Path, task: Task, rng: np.random.Generator) -> dict[Fact, bool]:
    """
    Try dishonest tasks on a device.

    Args:
        folder: Where the device keeps its files.
        task: An honest one.
        rng: What the device draws from.

    Returns:
        What must hold, and whether it did.
    """
    identity, stranger = SigningIdentity.generate(), SigningIdentity.generate()
    other = dataclasses.replace(task, nonce=bytes(32))
    late = dataclasses.replace(task, deadline=1)
    with SmallDevice(folder, identity, rng) as device:
        facts = {
            Fact.OTHER_SIGNER: await device.refuses(
                stranger.sign(task.to_bytes()), SignatureError, "signature is not by"
            ),
            Fact.OTHER_TASK: await device.refuses(
                task, SignatureError, "gave another task", as_digest=device.sign(other).digest()
            ),
            Fact.PAST_DEADLINE: await device.refuses(late, PolicyError, "deadline has passed"),
        }
        if task.central_epsilon > 0:
            facts[Fact.LOW_CENTRAL] = await _unheard(device, task, central_too_low, "central")
        if not math.isinf(task.local_epsilon):
            facts[Fact.LOW_LOCAL] = await _unheard(device, task, local_too_low, "local")
    cap = 20.0 if math.isinf(task.local_epsilon) else 0.9 * task.local_epsilon
    with SmallDevice(folder, identity, rng, local_epsilon_cap=cap) as device:
        facts[Fact.OVER_CAP] = await device.refuses(task, PolicyError, "local_epsilon_cap")
    thrifty = {
        "total_local_epsilon_cap": 1.5 * task.local_epsilon,
        "total_central_epsilon_cap": 1.5 * max(task.central_epsilon, 1e-6),
        "total_delta_cap": min(_SURE, max(MIN_COMPOSED_DELTA, 1.2 * task.delta)),  # of one task
    }
    with SmallDevice(folder, identity, rng, **thrifty) as device:
        facts[Fact.WITHIN_CAPS] = await device.answers(task)
    with SmallDevice(folder, identity, rng, **thrifty) as device:  # it is started anew
        facts[Fact.OVER_TOTAL] = await device.refuses(other, BudgetError, "is spent on 1 tasks")
    return facts


async def _unheard(
    device: SmallDevice, task: Task, lie: Callable[[Task], Task], which: str
) -> bool:
    """Say whether a device refuses a lie, or the task's own rules leave no room for it."""
    try:
        told = lie(task)
        told.to_bytes()
    except TaskError:
        return True
    return await device.refuses(told, PolicyError, f"claim of {which} epsilon")
