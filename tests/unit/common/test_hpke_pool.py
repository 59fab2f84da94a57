import contextlib
import multiprocessing
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from common.hpke import HpkePrivateKey, report_context
from common.hpke_pool import HpkePool, Opened, open_each, seal_each
from common.task_digest import TaskDigest

_CONTEXT = report_context(TaskDigest(bytes(32)))


def _sealed(key: HpkePrivateKey, count: int) -> list[bytes]:
    seal = key.public_key().sealer(_CONTEXT)
    return [seal(number.to_bytes(12, "big")) for number in range(count)]


def test_what_does_not_open_is_marked_and_the_rest_opens() -> None:
    """Every ciphertext keeps its place."""
    key = HpkePrivateKey.generate()
    sealed = _sealed(key, 4)
    sealed[2] = bytes(60)
    opened = open_each(key, b"".join(sealed), 60, _CONTEXT)

    assert bytes([1, 1, 0, 1]) == opened.readable
    assert b"".join(n.to_bytes(12, "big") for n in (0, 1, 0, 3)) == opened.plaintexts


def test_worker_processes_open_the_same() -> None:
    """The pool is `open_each` elsewhere."""
    key = HpkePrivateKey.generate()
    blob = b"".join(_sealed(key, 50))
    pool = HpkePool(key, 2)
    try:
        assert open_each(key, blob, 60, _CONTEXT) == pool.open(blob, 60, _CONTEXT).result()
    finally:
        pool.close()


def test_worker_processes_seal_what_opens_again() -> None:
    """To any public key; in order."""
    key, texts = HpkePrivateKey.generate(), bytes(range(36))
    pool = HpkePool(HpkePrivateKey.generate(), 1)
    try:
        sealed = pool.seal(key.public_key().raw, texts, 12, _CONTEXT).result()
    finally:
        pool.close()

    assert texts == open_each(key, sealed, 60, _CONTEXT).plaintexts
    with pytest.raises(ValueError, match="whole number"):
        seal_each(key.public_key().raw, bytes(13), 12, _CONTEXT)


def _lengths(opened: Opened, factor: int) -> tuple[int, int]:
    return factor * len(opened.plaintexts), len(opened.readable)


def test_worker_processes_go_on_with_what_they_opened() -> None:
    """The plaintexts stay there; what is made of them comes back."""
    key = HpkePrivateKey.generate()
    pool = HpkePool(key, 1)
    work = partial(_lengths, factor=2)
    try:
        made = pool.open_and(work, b"".join(_sealed(key, 5)), 60, _CONTEXT).result()
    finally:
        pool.close()

    assert (2 * 5 * 12, 5) == made


def test_half_a_ciphertext_is_a_mistake_of_the_caller() -> None:
    """Chunks hold whole ciphertexts."""
    with pytest.raises(ValueError, match="whole number"):
        open_each(HpkePrivateKey.generate(), bytes(61), 60, _CONTEXT)


def test_a_worker_that_dies_is_replaced() -> None:
    """What it held fails; the next chunk opens."""
    key = HpkePrivateKey.generate()
    blob = b"".join(_sealed(key, 3))
    pool = HpkePool(key, 1)
    try:
        pool.open(blob, 60, _CONTEXT).result()
        [worker] = multiprocessing.active_children()
        worker.kill()
        worker.join()
        with contextlib.suppress(BrokenProcessPool):
            pool.open(blob, 60, _CONTEXT).result()
        assert open_each(key, blob, 60, _CONTEXT) == pool.open(blob, 60, _CONTEXT).result()
    finally:
        pool.close()
