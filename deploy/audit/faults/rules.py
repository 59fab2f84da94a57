"""Faults of a device's rules, of what it seals, and of small rules that others rely on."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.accounting.composition import composed_claims
from common.crypto.hpke import SealContext
from common.crypto.receipt import receipt_holds
from common.crypto.signing import SignedTask
from common.mechanisms.hashing.placement import Placement
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.sampling import exact_coins
from common.mechanisms.weights import ResponseWeights
from common.messages.guarantee import rounded_down, rounded_up
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.faults import planting
from user_agent import budget
from user_agent.agent import Acknowledgement, Agent
from user_agent.contribution import Answer, Contributor
from user_agent.evidence import Inclusion
from user_agent.inclusion_monitor import conclusion
from user_agent.policy import Claim, Policy, check, check_totals

_LATE: Final = 30 * 24 * 3600
_LOOSE: Final = 1.1
_LABEL_BYTES: Final = 16


def _totals_with(**caps: Any) -> AbstractContextManager[None]:
    def other(policy: Policy, spent: Sequence[Claim], claim: Claim) -> None:
        check_totals(dataclasses.replace(policy, **caps), spent, claim)

    return planting.function(check_totals, other)


def no_total_local_cap() -> AbstractContextManager[None]:
    """Plant a device that forgets the cap on its local ε over all tasks."""
    return _totals_with(total_local_epsilon_cap=math.inf)


def no_total_central_cap() -> AbstractContextManager[None]:
    """Plant one that forgets the cap on its central ε over all tasks."""
    return _totals_with(total_central_epsilon_cap=math.inf)


def _spent_by(rows: str) -> AbstractContextManager[None]:
    """Count those answers alone that a condition on their rows names."""

    def other(connection: Any, person: str) -> list[Claim]:
        found = connection.execute(
            f"SELECT local_epsilon, central_epsilon, delta FROM submissions {rows}",  # noqa: S608  # a constant
            (person,),
        )
        names = ("local_epsilon", "central_epsilon", "delta")
        return [Claim(**dict(zip(names, row, strict=True))) for row in found]

    return planting.attribute(budget, "_claims", other)


def unsent_not_charged() -> AbstractContextManager[None]:
    """Plant a device that charges only what has arrived."""
    return _spent_by("WHERE person = ? AND state = 'arrived'")


def last_claim_charged() -> AbstractContextManager[None]:
    """Plant a device that remembers one earlier answer."""
    return _spent_by("WHERE person = ? LIMIT 1")


def one_task_forgotten() -> AbstractContextManager[None]:
    """Plant a composition that leaves one claim out."""

    def other(claims: Sequence[tuple[float, float]], delta: float) -> float:
        return composed_claims(claims[1:] if len(claims) > 1 else claims, delta)

    return planting.function(composed_claims, other)


def confirmed_too_early() -> AbstractContextManager[None]:
    """Plant an agent that takes a claim for confirmed before it is."""
    honest = Agent.contribute

    async def other(self: Agent, digest: TaskDigest, value: int, person: str) -> Acknowledgement:
        try:
            return await honest(self, digest, value, person)
        finally:
            self._confirmed.append(digest)  # as the fault does

    return planting.attribute(Agent, "contribute", other)


def _checks_with(
    change: Callable[[Policy, float], tuple[Policy, float]],
) -> AbstractContextManager[None]:
    def other(
        signed: SignedTask,
        digest: TaskDigest,
        policy: Policy,
        now: float,
        *,
        claim_confirmed: bool = False,
    ) -> Task:
        return check(signed, digest, *change(policy, now), claim_confirmed=claim_confirmed)

    return planting.function(check, other)


def deadline_30_days_late() -> AbstractContextManager[None]:
    """Plant a device that answers a month longer."""
    return _checks_with(lambda policy, now: (policy, now - _LATE))


def local_cap_loose() -> AbstractContextManager[None]:
    """Plant a cap that lets a tenth more through."""

    def change(policy: Policy, now: float) -> tuple[Policy, float]:
        cap = policy.local_epsilon_cap * _LOOSE
        return dataclasses.replace(policy, local_epsilon_cap=cap), now

    return _checks_with(change)


def refused_drawn_anew() -> AbstractContextManager[None]:
    """Plant a device that forgets an answer which the shuffler does not take."""

    def mark(connection: Any, submission: Any, state: budget.SubmissionState) -> None:
        key = (submission.person, submission.task_digest)
        if state is budget.SubmissionState.REFUSED:
            for table in ("submissions", "evidence"):
                connection.execute(
                    f"DELETE FROM {table} WHERE person = ? AND task_digest = ?",  # noqa: S608  # constants
                    key,
                )
            return
        connection.execute(
            "UPDATE submissions SET state = ? WHERE person = ? AND task_digest = ?",
            (state.value, *key),
        )

    return planting.attribute(budget, "_mark", mark)


def receipts_unchecked() -> AbstractContextManager[None]:
    """Plant a device that takes anything for a receipt."""
    return planting.function(receipt_holds, lambda *_: True)


@contextmanager
def value_in_a_file() -> Iterator[None]:
    """Plant an agent that writes its value down."""
    honest = Agent.contribute
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        notes = Path(folder) / "notes"

        async def other(
            self: Agent, digest: TaskDigest, value: int, person: str
        ) -> Acknowledgement:
            notes.write_text(str(value), encoding="ascii")
            return await honest(self, digest, value, person)

        with planting.attribute(Agent, "contribute", other):
            yield


def envelope_says_parity() -> AbstractContextManager[None]:
    """Plant a device that seals again until the envelope says whether its value is odd."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        while True:
            answer = honest(self, value, rng)
            if answer.envelope[0] & 1 == value & 1:
                return answer

    return planting.attribute(Contributor, "answer", other)


class _Naming(np.random.Generator):
    """A generator whose bytes begin with a value."""

    value = 0

    def bytes(self, length: int) -> bytes:
        return bytes([self.value % 256]) + super().bytes(length - 1)


def id_says_value() -> AbstractContextManager[None]:
    """Plant ids that begin with the value."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        naming = _Naming(rng.bit_generator)
        naming.value = value
        return honest(self, value, naming)

    return planting.attribute(Contributor, "answer", other)


def own_report_marked() -> AbstractContextManager[None]:
    """Plant a device whose own report's ciphertext is even, sealed until it is."""
    honest = Contributor.answer

    def other(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        mechanism, seal = self._mechanism, self._seal_report  # as the fault does
        own: list[bytes] = []

        class Noting:
            def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Any:
                reports = mechanism.randomize(values, rng)
                own.append(reports[:1].tobytes())
                return reports

            def __getattr__(self, name: str) -> Any:
                return getattr(mechanism, name)

        def marking(plaintext: bytes) -> bytes:
            while True:
                sealed = seal(plaintext)
                if plaintext != own[0] or not sealed[0] & 1:
                    return sealed

        self._mechanism, self._seal_report = Noting(), marking  # type: ignore[assignment]  # both stand in
        try:
            return honest(self, value, rng)
        finally:
            self._mechanism, self._seal_report = mechanism, seal

    return planting.attribute(Contributor, "answer", other)


def figures_rounded_down() -> AbstractContextManager[None]:
    """Plant figures that are rounded the wrong way."""
    return planting.function(rounded_up, rounded_down)


def any_report_counts() -> AbstractContextManager[None]:
    """Plant a device that is content with one of its reports."""

    def other(counted: Sequence[bool]) -> Inclusion:
        return Inclusion.COUNTED if any(counted) else Inclusion.MISSING

    return planting.function(conclusion, other)


def labels_cut() -> AbstractContextManager[None]:
    """Plant string hashing that looks at 16 bytes of a label."""
    honest = StringHashing._digests  # as the fault does

    def other(self: StringHashing, strings: Sequence[bytes]) -> NDArray[np.uint64]:
        return honest(self, [string[:_LABEL_BYTES] for string in strings])

    return planting.attribute(StringHashing, "_digests", other)


def constant_string_key() -> AbstractContextManager[None]:
    """Plant string hashing that is the same for every task."""
    honest = StringHashing._digests  # as the fault does

    def other(self: StringHashing, strings: Sequence[bytes]) -> NDArray[np.uint64]:
        return honest(dataclasses.replace(self, nonce=bytes(len(self.nonce))), strings)

    return planting.attribute(StringHashing, "_digests", other)


def colliding_places() -> AbstractContextManager[None]:
    """Plant a placement that puts two items in one place."""
    honest = Placement.__call__

    def other(self: Placement, items: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(items == self.size - 1, honest(self, items * 0), honest(self, items))

    return planting.attribute(Placement, "__call__", other)


def roles_unbound() -> AbstractContextManager[None]:
    """Plant seals that do not say for whom they are."""
    return planting.attribute(SealContext, "info", lambda self: b"shuffledp v1" + self.task_digest)


def constant_hybrid_half() -> AbstractContextManager[None]:
    """Plant a hybrid suite whose keys share their second half."""
    from common.crypto import suites

    honest = suites._hybrid_halves

    def other(seed: bytes) -> Any:
        return honest(seed)[0], honest(bytes(len(seed)))[1]

    return planting.attribute(suites, "_hybrid_halves", other)


def epsilon_rounded_up() -> AbstractContextManager[None]:
    """Plant weights for ε rounded up to one decimal, and a check that rounds likewise."""
    made: Any = vars(ResponseWeights)["for_epsilon"].__func__  # of a class method
    kept = ResponseWeights.keeps_promise

    def rounded(epsilon: float) -> float:
        return epsilon if math.isinf(epsilon) else min(20.0, math.ceil(epsilon * 10) / 10)

    return planting.both(
        planting.attribute(
            ResponseWeights,
            "for_epsilon",
            classmethod(lambda cls, epsilon: made(cls, rounded(epsilon))),
        ),
        planting.attribute(
            ResponseWeights, "keeps_promise", lambda self, epsilon: kept(self, rounded(epsilon))
        ),
    )


def remainder_undecided() -> AbstractContextManager[None]:
    """Plant coins that 16 bits decide, and nothing else."""

    def other(
        weight: int, total: int, shape: tuple[int, ...], rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        heads: NDArray[np.bool_] = rng.integers(0, 1 << 16, size=shape) < (weight << 16) // total
        return heads

    return planting.function(exact_coins, other)


def float32_answers() -> AbstractContextManager[None]:
    """Plant randomized response that draws its integers from floats of 24 bits."""
    honest = ResponseWeights.respond

    class Rounding(np.random.Generator):
        def integers(self, low: Any, high: Any = None, *_: Any, **named: Any) -> Any:
            share = self._source.random(size=named["size"], dtype=np.float32).astype(np.float64)
            return (low + share * (high - low)).astype(np.int64)

        _source: Any = None

    def other(
        self: ResponseWeights, truth: NDArray[np.int64], answers: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        rounding = Rounding(rng.bit_generator)
        rounding._source = rng
        return honest(self, truth, answers, rounding)

    return planting.attribute(ResponseWeights, "respond", other)
