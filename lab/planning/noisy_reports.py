"""Protocols of one noisy report: the largest local ε that meets the target. Pure."""

import dataclasses
import math
from typing import Final

from shuffledp.common.errors import PlanError
from shuffledp.common.limits import MAX_LOCAL_EPSILON
from shuffledp.common.task.draft import TaskDraft, TextDraft
from shuffledp.common.task.specs import INSTANT_SUM, PERMANENT_SUM
from shuffledp.lab.planning.calibration import last_enough
from shuffledp.lab.planning.design import Design, meets
from shuffledp.lab.planning.protocol_family import ProtocolFamily
from shuffledp.lab.planning.requirements import MIN_VALUE_EPSILON, Requirements

_REL_TOL: Final = 1e-2
"""Relative tolerance of the search for the largest local ε."""


class LocalReports(ProtocolFamily):
    """Protocols that rely on no shuffler: the local ε is the target ε, limited by the caps."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """Return the design with the target ε; it may be at most MAX_LOCAL_EPSILON."""
        allowed = min(target.central_epsilon, target.local_cap)
        epsilon = min(allowed, MAX_LOCAL_EPSILON)
        note = f"the local epsilon is at most {MAX_LOCAL_EPSILON:g}" if epsilon < allowed else ""
        return dataclasses.replace(Design.of(protocol, target, local_epsilon=epsilon), note=note)


class NoisyReports(ProtocolFamily):
    """Protocols without a search of their own: one noisy report, and an honest shuffler."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return the design with the largest local ε that meets the target, to within 1 %.

        Cost: about ten tasks, tenths of a second each.
        """

        def at(epsilon: float) -> Design | None:
            draft = self.draft(protocol, epsilon, target)
            return None if draft is None else Design(draft=draft, target=target)

        def enough(epsilon: float) -> bool:
            found = at(epsilon)
            return found is not None and found.local_epsilon <= target.local_cap and meets(found)

        high = target.noise_cap
        low = max(MIN_VALUE_EPSILON, min(high, target.central_epsilon))  # central ε ≤ local ε
        best = last_enough(enough, low, high, _REL_TOL)
        if best is None or (found := at(best)) is None:
            raise PlanError(
                f"no local epsilon meets a central epsilon of {target.central_epsilon:g} at delta "
                f"{target.delta:g} with {target.n_min} users: use more users, a larger epsilon or "
                "a larger delta"
            )
        return found

    def draft(self, protocol: str, local_epsilon: float, target: Requirements) -> TaskDraft | None:
        """Return the draft with a local ε; None if no parameters have it."""
        return target.draft(protocol, local_epsilon=local_epsilon)


class NoisyTexts(NoisyReports):
    """RAPPOR, whose probabilities imply the local ε."""

    def draft(self, protocol: str, local_epsilon: float, target: Requirements) -> TaskDraft | None:
        """
        Return the draft with q = 1 - p for a local ε; None if p would be 1/2.

        p solves (1-f)(q-p) = tanh(ε/4h), the signal at this ε; p is 0 if the permanent noise f
        alone leaves less. A given f must be in [0, 1), else PlanError; the default f is lowered if
        necessary.
        """
        draft = target.draft(protocol)
        texts = draft.texts or TextDraft(bits=0 if draft.labels else 32)
        signal = math.tanh(local_epsilon / (4 * texts.hashes))
        if draft.texts is None:
            most = math.floor((1 - signal) * PERMANENT_SUM) / PERMANENT_SUM
            texts = dataclasses.replace(texts, permanent=min(texts.permanent, most))
        if not 0 <= texts.permanent < 1:
            raise PlanError(f"permanent is {texts.permanent}; it must be at least 0 and below 1")
        spread = min(1.0, signal / (1 - texts.permanent))
        unset = math.floor((1 - spread) / 2 * INSTANT_SUM + 1) / INSTANT_SUM if spread < 1 else 0.0
        if unset >= 1 / 2:
            return None
        texts = dataclasses.replace(texts, unset=unset, set=1 - unset)
        return dataclasses.replace(draft, texts=texts)
