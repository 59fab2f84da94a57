import subprocess
import sys
import time

import psutil
import pytest

from common.crypto.hpke import HpkePrivateKey, report_context
from common.crypto.hpke_pool import HpkePool
from common.crypto.suites import DEFAULT_SUITE
from common.runtime.process_metrics import measure
from common.task_digest import TaskDigest

_CONTEXT = report_context(TaskDigest(bytes(32)))


def test_a_process_that_has_ended_is_told_from_one_that_runs() -> None:
    """Another process can be measured, too: its memory is not this one's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        running = measure(other.pid)
        other.kill()
        other.wait()
        with pytest.raises(psutil.NoSuchProcess):
            measure(other.pid)

    assert 0 < running.resident_bytes < measure().resident_bytes


@pytest.mark.slow
def test_the_time_of_workers_counts_while_they_run_and_when_they_have_ended() -> None:
    """Some thousand seals take a worker's time and memory; ended, its time stays."""
    key = HpkePrivateKey.generate(DEFAULT_SUITE).public_key()
    before, started = measure(), time.process_time()
    pool = HpkePool(1)
    pool.seal(key, bytes(16 * 20_000), 16, _CONTEXT).result()
    here = time.process_time() - started
    running = measure()
    pool.close()
    ended = measure()

    assert running.cpu_seconds - before.cpu_seconds > here + 0.5
    assert running.resident_bytes - ended.resident_bytes > 10 * 2**20
    assert ended.cpu_seconds >= running.cpu_seconds - 0.02
