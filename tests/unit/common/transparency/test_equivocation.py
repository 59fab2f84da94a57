"""Devices, and an analyzer that shows each of some victims a task of its own."""

from dataclasses import replace
from functools import partial

import pytest

from shuffledp.common.errors import ProofError
from shuffledp.common.transparency.log import LogEvidence, find_fork
from shuffledp.common.transparency.merkle import verify_consistency
from tests.support.transparency import (
    KEYS,
    LOG,
    NOW,
    POLICY,
    WITNESSES,
    Log,
    empty,
    task_entry,
    with_lines,
)

_BEFORE = [task_entry(i) for i in range(40)]
_COMMON = Log([*_BEFORE, task_entry(100)])
_N_VICTIMS = 100


def _shown(log: Log, n_forgetful: int = 0) -> LogEvidence:
    """Ask witnesses that know the common log for cosignatures; some forget what they signed."""
    head, known = log.head(), _COMMON.head(40 if log is _COMMON else None).checkpoint
    for i, witness in enumerate(WITNESSES):
        last = empty() if i < n_forgetful else known
        path = log.consistency(last.size)
        try:
            line = witness.cosign(
                last,
                head,
                old_size=last.size,
                proof=partial(verify_consistency, path=path),
                seconds=NOW,
            )
        except ProofError:
            continue
        assert line is not None
        head = with_lines(head, line)
    return log.proof(40, signed=head)


@pytest.mark.parametrize("n_dishonest", [0, 1, 2])
@pytest.mark.parametrize("larger", [False, True])
def test_every_victim_refuses_or_holds_a_proof(n_dishonest: int, larger: bool) -> None:  # noqa: FBT001  # a column
    """
    All witnesses cosigned the honest head first, and some then forget it.

    What a victim was shown convicts the log, together with any other device's, and if the victim
    accepts, those witnesses too. The first half of the victims knew the log before.
    """
    old, common = _COMMON.cosigned(40), _shown(_COMMON)
    POLICY.check(common.checkpoint, NOW, old, _COMMON.consistency(40))
    n_accepted = 0
    for victim in range(_N_VICTIMS):
        fork = Log([*_BEFORE, task_entry(1000 + victim), *[task_entry(5)] * larger])
        shown = _shown(fork, n_dishonest)
        shown.verify()
        last = old if 2 * victim < _N_VICTIMS else None
        assert (common, shown) == find_fork([common, shown], LOG)
        try:
            POLICY.check(shown.checkpoint, NOW, last, fork.consistency(40))
        except ProofError:
            continue
        n_accepted += 1
        for key in KEYS[:n_dishonest]:
            assert (common, shown) == find_fork([common, shown], key)

    assert (0 if n_dishonest < 2 else _N_VICTIMS) == n_accepted


def test_one_dishonest_witness_of_three_divides_the_honest_ones() -> None:
    """Each side passes a quorum of two, neither one of three, and together they convict it."""
    other, (dishonest, first, second) = Log([*_BEFORE, task_entry(1000)]), WITNESSES
    sides = [
        log.proof(40, signed=log.cosigned(witnesses=(dishonest, honest)))
        for log, honest in ((_COMMON, first), (other, second))
    ]
    for side in sides:
        POLICY.check(side.checkpoint, NOW)
        with pytest.raises(ProofError):
            replace(POLICY, quorum=3).check(side.checkpoint, NOW)

    assert [True, False, False] == [find_fork(sides, key) is not None for key in KEYS]
