"""Many devices, and an analyzer that shows some of them a task of its own."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from common.errors import ProofError
from common.transparency.checkpoint import SignedCheckpoint
from common.transparency.fork import Fork
from common.transparency.log_entry import EntryProof
from common.transparency.log_view import LogView
from common.transparency.witness import Witness, WitnessState
from tests.support.transparency import KEYS, LOG, NOW, POLICY, WITNESSES, Log, task_entry

_BEFORE = [task_entry(i) for i in range(40)]
_COMMON = Log([*_BEFORE, task_entry(100)])
_N_VICTIMS = 100


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the analyzer shows to a device."""

    proof: EntryProof
    signed: SignedCheckpoint
    consistency: tuple[bytes, ...]


def _shown(log: Log, witnesses: tuple[Witness, ...], states: list[WitnessState]) -> _Shown:
    """Ask witnesses for their cosignatures, and show what they gave."""
    head = log.head()
    for i, witness in enumerate(witnesses):
        state, path = states[i], log.consistency(states[i].size)
        try:
            states[i], line = witness.cosign(
                state, head, old_size=state.size, consistency=path, seconds=NOW
            )
        except ProofError:
            continue
        head = head.add(line)
    return _Shown(log.proof(40), head, log.consistency(40))


def _own(victim: int, *, larger: bool) -> Log:
    """Return the log with a victim's own task, and perhaps one more entry."""
    more = [task_entry(5)] if larger else []
    return Log([*_BEFORE, task_entry(1000 + victim), *more])


@pytest.mark.parametrize("n_dishonest", [0, 1, 2])
@pytest.mark.parametrize("larger", [False, True])
def test_every_victim_refuses_or_holds_a_proof(n_dishonest: int, larger: bool) -> None:  # noqa: FBT001  # a column
    """
    All witnesses cosigned the honest head first, and some then forget it.

    A victim that accepts holds a proof, together with any other device, against the log and
    against those witnesses. The first half of the victims knew the log before.
    """
    states = [WitnessState(size=40, root=_COMMON.head(40).checkpoint.root) for _ in WITNESSES]
    old = LogView(POLICY, _COMMON.cosigned(40))
    common = _shown(_COMMON, WITNESSES, states)
    n_accepted = 0
    for victim in range(_N_VICTIMS):
        fork = _own(victim, larger=larger)
        blind = [WitnessState()] * n_dishonest  # a dishonest witness forgets what it signed
        shown = _shown(fork, WITNESSES, [*blind, *states[n_dishonest:]])
        view = old if 2 * victim < _N_VICTIMS else LogView(POLICY)
        try:
            view.accept(shown.proof, shown.signed, shown.consistency, NOW)
        except ProofError:
            continue
        n_accepted += 1
        evidence = Fork(common.signed, shown.signed, (common.proof, shown.proof))
        evidence.verify(LOG)
        for key in KEYS[:n_dishonest]:
            evidence.verify(key)

    assert (0 if n_dishonest < 2 else _N_VICTIMS) == n_accepted


def test_one_dishonest_witness_of_three_divides_the_honest_ones() -> None:
    """Each side passes a quorum of two, neither one of three, and together they convict it."""
    other, (dishonest, first, second) = _own(0, larger=False), WITNESSES
    sides = (
        _COMMON.cosigned(witnesses=(dishonest, first)),
        other.cosigned(witnesses=(dishonest, second)),
    )
    for signed in sides:
        LogView(POLICY).advance(signed, (), NOW)
        with pytest.raises(ProofError):
            LogView(replace(POLICY, quorum=3)).advance(signed, (), NOW)

    Fork(*sides).verify(KEYS[0])


@pytest.mark.parametrize("n_devices", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_percent_are_shown_another_task(n_devices: int) -> None:
    """
    With honest witnesses all victims refuse and hold a proof, and all others accept.

    Deterministic: the seed only picks the victims.
    """
    states = [WitnessState(size=40, root=_COMMON.head(40).checkpoint.root) for _ in WITNESSES]
    old = LogView(POLICY, _COMMON.cosigned(40))
    common = _shown(_COMMON, WITNESSES, states)
    chosen = np.random.default_rng(7).choice(n_devices, n_devices // 100, replace=False)
    victims = set(chosen.tolist())
    accepted, proofs = set(), 0
    for device in range(n_devices):
        log = _own(device, larger=False)
        shown = _shown(log, WITNESSES, list(states)) if device in victims else common
        try:
            view = old.accept(shown.proof, shown.signed, shown.consistency, NOW)
        except ProofError:
            # The victim keeps the refused head: with any other device's it convicts the log.
            Fork(common.signed, shown.signed).verify(LOG)
            proofs += 1
            continue
        assert common.signed == view.last
        accepted.add(device)

    assert set(range(n_devices)) - victims == accepted
    assert len(victims) == proofs
