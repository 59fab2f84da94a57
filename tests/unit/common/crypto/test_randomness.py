import copy
import hmac
import os
import pickle
import secrets

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from shuffledp.common.crypto.randomness import secure_generator, seeded_generator


def _draw(generator: np.random.Generator) -> bytes:
    return generator.bytes(32)


def test_its_key_is_256_bits_of_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draws are ChaCha20's stream under that key, through numpy's own methods."""
    drawn, honest = list[bytes](), secrets.token_bytes

    def noted(size: int) -> bytes:
        drawn.append(honest(size))
        return drawn[-1]

    monkeypatch.setattr(secrets, "token_bytes", noted)
    generator = secure_generator()
    [key] = drawn
    assert 32 == len(key)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    assert stream.update(bytes(4096)) == generator.bytes(4096)
    for name in ("integers", "permutation", "bytes", "random", "shuffle", "choice"):
        assert getattr(np.random.Generator, name) is getattr(type(generator), name)


def test_it_refuses_to_be_copied() -> None:
    """A copy of it or of its bit generator would repeat its draws."""
    generator = secure_generator()

    for thing in (generator, generator.bit_generator):
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy, lambda it: it.__getstate__()):
            with pytest.raises(TypeError):
                duplicate(thing)
    with pytest.raises(TypeError):
        generator.spawn(2)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_draws_another_stream() -> None:
    """Without new keys after a fork, parent and child would draw the same bytes."""
    generator = secure_generator()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, _draw(generator))
        os._exit(0)
    os.waitpid(child, 0)
    child_draw = os.read(reading, 32)
    os.close(reading)
    os.close(writing)

    assert len(child_draw) == 32
    assert child_draw != _draw(generator)


def test_a_seeded_generator_is_chacha_under_hkdf() -> None:
    """The key is HKDF-SHA256 of the seed, with label, stage and part in fields of known length."""
    seed, info = bytes(range(32)), b"shuffledp v1 part" + b"\x07scatter" + (258).to_bytes(8)
    extracted = hmac.digest(bytes(32), seed, "sha256")
    key = hmac.digest(extracted, info + b"\x01", "sha256")
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    assert stream.update(bytes(256)) == seeded_generator(seed, "scatter", 258).bytes(256)


def test_every_seed_stage_and_part_has_its_own_stream() -> None:
    """The same three give the same stream; nothing may copy it."""
    seeds, stages = (bytes(32), bytes(31) + b"\1"), ("scatter", "permute", "")
    names = [(seed, stage, part) for seed in seeds for stage in stages for part in (0, 1, 2**40)]
    streams = [seeded_generator(*name).bytes(32) for name in names]

    assert len(names) == len(set(streams))
    assert streams == [seeded_generator(*name).bytes(32) for name in names]
    with pytest.raises(TypeError):
        pickle.dumps(seeded_generator(*names[0]))
