"""Whether production's generator is what it says: a cipher, its key, and what numpy makes of it."""

import copy
import os
import pickle
import random
import secrets
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from common.crypto.randomness import secure_generator
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome

_KEY_BYTES: Final = 32
_COMPARED: Final = 4096
_DRAWS: Final = ("integers", "permutation", "bytes", "random", "shuffle", "choice")


def play_generators(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Look at generators as the services make them; what they draw is nobody's secret here."""
    del audited, rng
    checks = Checks()
    asked: list[tuple[int | None, bytes]] = []
    honest = secrets.token_bytes

    def noted(size: int | None = None) -> bytes:
        asked.append((size, honest(size)))
        return asked[-1][1]

    with patch.object(secrets, "token_bytes", noted):
        made = [secure_generator() for _ in range(2)]
    checks.must(
        "a key of 32 bytes from the operating system for each generator",
        [size for size, _ in asked] == [_KEY_BYTES] * 2,
    )
    for generator, (_, key) in zip(made, asked, strict=False):
        stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        checks.must(
            "what is drawn is the stream of ChaCha20 under that key",
            generator.bytes(_COMPARED) == stream.update(bytes(_COMPARED)),
        )
        for name in _DRAWS:
            checks.must(
                f"{name} is numpy's own",
                getattr(type(generator), name, None) is getattr(np.random.Generator, name),
            )
    checks.must("it cannot be copied", not any(map(_copied, made)))
    checks.must("a forked child draws another stream", _forked_apart(made[0]))
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002  # to see it unused
    checks.must("keys are drawn anew", len({secure_generator().bytes(16) for _ in range(50)}) == 50)  # noqa: PLR2004  # all
    after = random.getstate(), repr(np.random.get_state())  # noqa: NPY002  # the same
    checks.must("no other source of randomness", before == after)
    finding = checks.finding(
        scenario="generators",
        title="Randomness is ChaCha20 under keys of the operating system",
        heading="anonymity",
        coalition="analyzer",
        sentence="What devices and the shuffler draw comes from a cipher under a fresh key of 256 "
        "bits; whether the cipher holds is not tested.",
        advice="Do not collect with this version: its noise and its orders can be foretold.",
    )
    return Outcome(findings=(finding,))


def _copied(generator: np.random.Generator) -> bool:
    """Say whether a generator, or what it draws bits from, can be had twice."""
    ways: tuple[Callable[[Any], object], ...] = (pickle.dumps, copy.copy, copy.deepcopy)
    for thing in (generator, generator.bit_generator):
        for way in ways:
            try:
                way(thing)
            except TypeError:
                continue
            return True
    return False


def _forked_apart(generator: np.random.Generator) -> bool:
    """Fork, let both draw, and compare."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, generator.bytes(16))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 16)
    os.close(reading)
    os.close(writing)
    return theirs != generator.bytes(16)
