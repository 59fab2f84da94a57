"""
Whether whole batches have the law that amplified guarantees are computed from.

What an amplified guarantee rests on is how many reports of a batch support each of two values. Many
small batches are drawn, each at once, of users who all hold one value but for the victim, and the
difference and the sum of the two numbers are compared with their exact laws: reports that are right
one by one and know of each other show here, and nowhere else.
"""

from typing import Final

import numpy as np
from scipy import fft

from common.mechanisms.base import Mechanism, Vector
from common.mechanisms.registry import mechanism_of
from common.task.task import Task
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.laws.panel import panel
from deploy.audit.laws.support_law import SupportLaw, support_law

_USERS: Final = 50
_DUMMIES: Final = 2
"""Of each user, where a task may have dummies."""
_BATCHES_TOGETHER: Final = 1000
_OF_A_SAMPLE: Final = 8
"""As many times fewer batches are drawn of a sample task."""

Steps = dict[tuple[int, int], float]
"""How likely a report supports the first value (1 or 0) and the second."""


def play_batches(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Draw batches of the audited task, and of every mechanism."""
    checks, batches = Checks(), audited.effort.crowds // (_USERS * (1 + _DUMMIES))
    tasks = {task.mechanism.name: task for task in panel()}
    for task in (audited.task, *tasks.values()):
        law = support_law(task)
        if not law.far_only:  # intervals of a square wave may overlap: nothing is written of that
            number = batches if task is audited.task else batches // _OF_A_SAMPLE
            check_batches(checks, task, law, number, rng)
    finding = checks.finding(
        scenario="batches",
        title="Whole batches have the law that guarantees are computed from",
        heading="correctness",
        coalition="analyzer",
        sentence=f"In batches of {_USERS} users the numbers of reports that support either of two "
        "values varied together just as the amplified guarantees count on.",
        trials=batches,
        advice="Do not collect with this version: its amplified guarantees do not describe it.",
    )
    return Outcome(findings=(finding,))


def check_batches(
    checks: Checks, task: Task, law: SupportLaw, batches: int, rng: np.random.Generator
) -> None:
    """
    Compare batches with their exact law.

    Args:
        checks: Where the tests are noted, under the mechanism's name.
        task: Whose mechanism; the victim holds its first item, all others its last.
        law: Of single reports.
        batches: To be drawn.
        rng: Of all draws.
    """
    mechanism, items = mechanism_of(task), (0, task.domain_size - 1)
    n_dummies = _USERS * _DUMMIES if task.composition.dummy_laws else 0
    counts = np.concatenate(
        [
            _counts(mechanism, items, n_dummies, min(_BATCHES_TOGETHER, batches - start), rng)
            for start in range(0, batches, _BATCHES_TOGETHER)
        ]
    )
    messages = _USERS + n_dummies
    parts = ((_own(law), 1), (_turned(_own(law)), _USERS - 1), (_dummy(law), n_dummies))
    for name, sign in (("difference", -1), ("sum", 1)):
        exact = _law_of_sum(parts, sign, 2 * messages)
        seen = counts[:, 0] + sign * counts[:, 1]
        cells = np.bincount(seen + 2 * messages, minlength=4 * messages + 1)
        checks.test(
            f"{task.mechanism.name}: the {name} of two values' counts", fit.of_cells(cells, exact)
        )


def _counts(
    mechanism: Mechanism,
    items: tuple[int, int],
    n_dummies: int,
    batches: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw batches, and count what supports either value in each: shape (batches, 2)."""
    held = np.full((batches, _USERS), items[1], dtype=np.int64)
    held[:, 0] = items[0]
    sent = [mechanism.randomize(held.ravel(), rng)]
    batch = [np.repeat(np.arange(batches), _USERS)]
    if n_dummies:
        sent.append(mechanism.dummies(batches * n_dummies, rng))
        batch.append(np.repeat(np.arange(batches), n_dummies))
    reports, of = np.concatenate(sent), np.concatenate(batch)
    return np.stack(
        [
            np.bincount(of[mechanism.supports(reports, item)], minlength=batches).astype(np.int64)
            for item in items
        ],
        axis=1,
    )


def _own(law: SupportLaw) -> Steps:
    """Of a report whose sender holds the first value."""
    both = law.own * law.other if law.independent else 0.0
    return _filled({(1, 1): both, (1, 0): law.own - both, (0, 1): law.other - both})


def _turned(steps: Steps) -> Steps:
    return {(second, first): chance for (first, second), chance in steps.items()}


def _dummy(law: SupportLaw) -> Steps:
    both = law.dummy**2 if law.independent else 0.0
    return _filled({(1, 1): both, (1, 0): law.dummy - both, (0, 1): law.dummy - both})


def _filled(steps: Steps) -> Steps:
    return {**steps, (0, 0): max(0.0, 1 - sum(steps.values()))}


def _law_of_sum(parts: tuple[tuple[Steps, int], ...], sign: int, reach: int) -> Vector:
    """
    Give the law of Σ (first + sign·second) over -reach .. reach.

    Args:
        parts: Laws of single reports, and how many have each.
        sign: 1 or -1.
        reach: Beyond what the sum can be.
    """
    size = fft.next_fast_len(2 * reach + 1)
    turns = np.exp(-2j * np.pi * np.arange(size) / size)
    product = np.ones(size, dtype=np.complex128)
    for steps, number in parts:
        one = sum(
            chance * turns ** (first + sign * second) for (first, second), chance in steps.items()
        )
        product *= one**number
    law = np.maximum(np.fft.ifft(product).real, 0.0)
    law[law < _ROUNDING] = 0.0
    return np.concatenate([law[-reach:], law[: reach + 1]])


_ROUNDING: Final = 1e-15
"""What a Fourier transform leaves of no probability; no draw falls where less is expected."""
