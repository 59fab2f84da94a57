"""Rules of devices, covert bits and small rules: honest code passes, and faults are found."""

import asyncio
import time
from pathlib import Path

import pytest

from deploy.audit.faults.catalogue import FAULTS
from deploy.audit.run import rehearse, scenarios_named
from deploy.audit.stand_ins.pauses import Pauses
from deploy.audit.stand_ins.writes import Writes
from tests.support.audits import audited, played
from tests.support.protocol_tasks import protocol_task


@pytest.mark.parametrize(
    "name",
    [
        *("device-rules", "small-rules"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("settings", "secrets", "proofs", "stores", "startup", "operators")
        ),
    ],
)
def test_deployed_code_keeps_every_rule(name: str) -> None:
    """As it is: all of them in the long suite, and in every quick audit."""
    [scenario] = scenarios_named([name])

    for row in played(scenario, audited()):
        assert row.passed, row.sentence


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["ldp-sw", "aue", "od-hp", "fe1", "sageo"])
def test_no_bit_of_what_is_sealed_says_anything(protocol: str) -> None:
    """Of one report or of many; errs by chance with probability 1e-6 a run."""
    [scenario] = scenarios_named(["covert-bits"])
    [row] = played(scenario, audited(protocol_task(protocol)))

    assert row.passed, row.sentence


@pytest.mark.parametrize(
    "name",
    [
        *("value-in-an-event", "rounded-down"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                *("total-local-cap", "fifty-claims", "weak-keys", "nonce-of-place"),
                *("grpc-may-log", "workers-untold", "pages-apart"),
            )
        ),
    ],
)
def test_a_rule_that_is_broken_is_named(name: str) -> None:
    """Some of them; the others in the long suite, and in every rehearsal."""
    [rehearsed] = rehearse(audited(), seed=1, faults=[FAULTS[name]], processes=1)

    assert rehearsed.caught, rehearsed.said


def test_writes_are_heard_while_a_block_runs(tmp_path: Path) -> None:
    """By path; no reads, and nothing afterwards."""
    with Writes() as writes:
        (tmp_path / "notes").write_text("1", encoding="ascii")
        (tmp_path / "notes").read_text(encoding="ascii")
    (tmp_path / "later").write_text("1", encoding="ascii")

    assert writes.elsewhere(tmp_path) == [str(tmp_path / "notes")]


async def test_pauses_are_heard_while_a_block_runs() -> None:
    """Of coroutines and of threads; what gives way to others at once is none."""
    with Pauses() as pauses:
        await asyncio.sleep(0)
        await asyncio.sleep(1e-4)
        await asyncio.to_thread(time.sleep, 1e-4)
    await asyncio.sleep(1e-4)

    assert pauses.seen == ["a coroutine", "a thread"]
