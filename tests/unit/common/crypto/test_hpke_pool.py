import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess

import pytest

from shuffledp.common.crypto.hpke import HpkePrivateKey, report_context, split_every
from shuffledp.common.crypto.hpke_pool import HpkePool, Opened, open_each, seal_each
from shuffledp.common.task_digest import TaskDigest

_HYBRID = "mlkem768x25519-hkdf-sha256-chacha20poly1305"
_CONTEXT = report_context(TaskDigest(bytes(32)))


@pytest.fixture
def pool() -> Iterator[HpkePool]:
    """Yield a pool of one worker."""
    made = HpkePool(1)
    yield made
    made.close()


def _worker(pool: HpkePool, key: HpkePrivateKey) -> BaseProcess:
    """Let the pool start its worker, and return it; services of other tests may have some too."""
    others = set(multiprocessing.active_children())
    pool.open_and(key, list, _sealed(key, 1), _CONTEXT).result()
    [worker] = set(multiprocessing.active_children()) - others
    return worker


def _texts(count: int) -> list[bytes]:
    return [number.to_bytes(12, "big") for number in range(count)]


def _sealed(key: HpkePrivateKey, count: int) -> list[bytes]:
    return list(map(key.public_key().sealer(_CONTEXT), _texts(count)))


def test_one_pool_opens_under_several_keys(pool: HpkePool) -> None:
    """Chunks of several suites open in turn; the wrong key opens nothing."""
    keys = [HpkePrivateKey.generate(), HpkePrivateKey.generate(), HpkePrivateKey.generate(_HYBRID)]
    sealed = [_sealed(key, 3) for key in keys]
    opened = [
        pool.open_and(key, list, blobs, _CONTEXT).result()
        for key, blobs in zip(keys * 2, sealed * 2, strict=True)
    ]
    swapped = pool.open_and(keys[1], list, sealed[0], _CONTEXT).result()
    pool.forget_keys()
    again = pool.open_and(keys[0], list, sealed[0], _CONTEXT).result()

    assert [_texts(3)] * 6 == opened
    assert [None] * 3 == swapped
    assert _texts(3) == again


def _wait_until_gone(process: int) -> None:
    """Wait without joining the process, which the pool's own thread does."""
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("the worker is still there")


def test_workers_that_may_hold_a_destroyed_key_end(pool: HpkePool) -> None:
    """Workers finish their work first, and new ones replace them."""
    key = HpkePrivateKey.generate()
    sealed = _sealed(key, 2000)
    former = _worker(pool, key)
    underway = pool.open_and(key, list, sealed, _CONTEXT)
    pool.forget_keys()
    assert _texts(2000) == underway.result()
    assert former.pid is not None
    _wait_until_gone(former.pid)


def test_ciphertexts_are_sealed_and_opened_in_order(pool: HpkePool) -> None:
    """A ciphertext that does not open is marked and keeps its place, filled with zeros."""
    key, texts = HpkePrivateKey.generate(), bytes(range(36))
    sealed = seal_each(key.public_key().sealer(_CONTEXT), texts, 12)

    assert texts == open_each(key, sealed, 60, _CONTEXT).plaintexts
    damaged = sealed[:60] + bytes(60) + sealed[120:]
    opened = Opened(plaintexts=texts[:12] + bytes(12) + texts[24:], readable=bytes([1, 0, 1]))
    assert opened == open_each(key, damaged, 60, _CONTEXT)
    in_worker = pool.open_and(key, list, split_every(damaged, 60), _CONTEXT).result()
    assert [texts[:12], None, texts[24:]] == in_worker
    with pytest.raises(ValueError, match="whole number"):
        seal_each(key.public_key().sealer(_CONTEXT), bytes(13), 12)
    with pytest.raises(ValueError, match="whole number"):
        open_each(key, bytes(61), 60, _CONTEXT)


def test_a_worker_that_dies_is_replaced(pool: HpkePool) -> None:
    """The dead worker's task fails; the next chunk opens."""
    key = HpkePrivateKey.generate()
    sealed, worker = _sealed(key, 3), _worker(pool, key)
    worker.kill()
    worker.join()
    with contextlib.suppress(BrokenProcessPool):
        pool.open_and(key, list, sealed, _CONTEXT).result()
    assert _texts(3) == pool.open_and(key, list, sealed, _CONTEXT).result()
