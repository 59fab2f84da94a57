"""What a device refuses, whatever an analyzer signed and a shuffler hands on: tried, not read."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from common.accounting.composition import MIN_COMPOSED_DELTA
from common.errors import ShuffleDpError, TaskError
from common.runtime.clock import SystemClock
from common.signing import SignedTask, SigningIdentity
from common.task import Task
from common.task_digest import TaskDigest
from deploy.audit.shuffler_in_memory import ShufflerInMemory
from user_agent.agent import Agent
from user_agent.budget import Budget
from user_agent.policy import Policy

_NO_LIMIT: Final = math.inf
_LARGE: Final = 1e6
_SURE: Final = 0.9
_TOO_LOW: Final = 0.99
"""Of an ε: further below the truth than a claim has room."""


class Device:
    """An agent of one person, with a budget file of its own."""

    def __init__(self, folder: Path, identity: SigningIdentity, rng: np.random.Generator) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._identity, self._rng = folder, identity, rng
        self.shuffler = ShufflerInMemory()
        self.policy = Policy(
            identity=identity.public_identity(),
            local_epsilon_cap=_NO_LIMIT,
            total_local_epsilon_cap=_NO_LIMIT,
            total_central_epsilon_cap=_LARGE,
        )

    async def answers(
        self,
        signed: SignedTask,
        *,
        as_digest: TaskDigest | None = None,
        policy: Policy | None = None,
    ) -> bool:
        """Say whether the device, started anew, answers a task; and sends it, or nothing."""
        digest = as_digest or signed.digest()
        self.shuffler.tasks[digest] = signed
        budget, before = Budget(self._folder / "budget.sqlite"), len(self.shuffler.tried)
        agent = Agent(
            shuffler=self.shuffler,
            budget=budget,
            policy=policy or self.policy,
            several_persons=False,
            clock=SystemClock(),
            rng=self._rng,
        )
        try:
            await agent.contribute(digest, 0, "")
        except ShuffleDpError:
            # It says no; if it spent or sent something all the same, it answered.
            return len(self.shuffler.tried) > before or await budget.find("", digest) is not None
        finally:
            budget.close()
        return True


async def refusals(folder: Path, task: Task, rng: np.random.Generator) -> dict[str, bool]:
    """
    Try dishonest tasks on a device.

    Args:
        folder: Where the device keeps its files.
        task: An honest one.
        rng: What the device draws from.

    Returns:
        What must hold, and whether it did.
    """
    identity = SigningIdentity.generate()
    device = Device(folder, identity, rng)
    honest = identity.sign(task.to_bytes())
    other = identity.sign(dataclasses.replace(task, nonce=bytes(32)).to_bytes())
    facts = {
        "a task that another identity signed is not answered": not await device.answers(
            SigningIdentity.generate().sign(task.to_bytes())
        ),
        "another task than the one asked for is not answered": not await device.answers(
            honest, as_digest=other.digest()
        ),
        "a task whose deadline has passed is not answered": not await device.answers(
            identity.sign(dataclasses.replace(task, deadline=1).to_bytes())
        ),
    }
    for what, lie in _lies(task):
        signed = _signed(identity, lie)
        facts[f"a task with {what} is not answered"] = signed is None or not await device.answers(
            signed
        )
    cap = 20.0 if math.isinf(task.local_epsilon) else 0.9 * task.local_epsilon
    over = await device.answers(
        honest, policy=dataclasses.replace(device.policy, local_epsilon_cap=cap)
    )
    facts["a task over the cap on local ε is not answered"] = not over
    thrifty = dataclasses.replace(
        device.policy,
        total_local_epsilon_cap=1.5 * task.local_epsilon,
        total_central_epsilon_cap=1.5 * max(task.central_epsilon, 1e-6),
        total_delta_cap=min(_SURE, max(MIN_COMPOSED_DELTA, 1.2 * task.delta)),  # of one task
    )
    facts["an honest task within the caps is answered"] = await device.answers(
        honest, policy=thrifty
    )
    facts[
        "what was spent is kept, and a second task over the budget is not answered"
    ] = not await device.answers(other, policy=thrifty)
    return facts


def _lies(task: Task) -> list[tuple[str, Callable[[], Task]]]:
    found: list[tuple[str, Callable[[], Task]]] = []
    if task.central_epsilon > 0:
        lower = _TOO_LOW * task.central_epsilon
        found.append(
            ("a central ε 1 % too low", lambda: dataclasses.replace(task, central_epsilon=lower))
        )
    if not math.isinf(task.local_epsilon):
        local = _TOO_LOW * task.local_epsilon
        central = min(local, task.central_epsilon) if task.composition.amplified else local
        found.append(
            (
                "a local ε 1 % too low",
                lambda: dataclasses.replace(task, local_epsilon=local, central_epsilon=central),
            )
        )
    return found


def _signed(identity: SigningIdentity, lie: Callable[[], Task]) -> SignedTask | None:
    """Sign a false task; None where the task's own rules leave no room for the lie."""
    try:
        return identity.sign(lie().to_bytes())
    except TaskError:
        return None
