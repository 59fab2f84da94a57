"""
Rules of keys and of what they seal: whence they come, how long they live, and what they hide.

Keys are made while every clock stands and every common generator is seeded alike: two of them are
the same if they follow from either. A ring of keys is led through its life on a clock of its own.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final, ParamSpec, TypeVar

import numpy as np

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, key_id, report_context
from common.crypto.hpke_pool import HpkePool, Opened, seal_each
from common.crypto.key_ring import Schedule
from common.crypto.signing import SigningIdentity
from common.crypto.suites import SUITES
from common.crypto.tokens import OperatorToken, TokenIssuer, serial_of
from common.errors import DamagedStorageError, SettingsError, UnknownKeyError
from common.runtime.key_store import KeyStore
from common.runtime.state_directory import StateDirectory, StateKey
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.checks import Checks
from deploy.audit.raw_bytes import changed
from deploy.audit.stand_ins.still_clock import START, clocks_at
from shuffler.storage.batch_key import BatchKey

P = TypeVar("P")
Q = ParamSpec("Q")
T = TypeVar("T")

_SEED: Final = 20
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_ROW: Final = b"one row, and always the same"
_SCHEDULE: Final = Schedule(lifetime=1_000.0, overlap=100.0, keep=500.0)
_MANY: Final = 64
"""Secrets of a kind that are compared byte by byte."""
_SUITE: Final = next(iter(SUITES))
_LENGTHS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "x25519-hkdf-sha256-chacha20poly1305": (32, 48),
        "x25519-hkdf-sha256-aes128gcm": (32, 48),
        "mlkem768x25519-hkdf-sha256-chacha20poly1305": (1216, 1136),
    }
)
"""Bytes of a public key, and what sealing adds."""


def check_keys(checks: Checks) -> None:
    """Check all of them; what is drawn comes from the operating system."""
    _check_sources(checks)
    _check_nonces(checks)
    _check_places(checks)
    _check_equal_plaintexts(checks)
    _check_suites(checks)
    _check_life(checks)
    _check_overlap(checks)
    _check_workers(checks)
    _check_travelling(checks)


def _kinds() -> dict[str, Callable[[], bytes]]:
    """Give what makes a secret of each kind."""
    issuer = TokenIssuer(TokenIssuer.generate())
    made: dict[str, Callable[[], bytes]] = {
        "signing identity": lambda: SigningIdentity.generate().private_bytes(),
        "batch key": BatchKey.generate,
        "operator's token": OperatorToken.generate,
        "state key": StateKey.generate,
        "token key": TokenIssuer.generate,
        "user's token": lambda: serial_of(issuer.issue()),
    }
    for suite in SUITES:
        made[f"key of the suite {suite}"] = partial(_encryption_key, suite)
    return made


def _encryption_key(suite: str) -> bytes:
    return HpkePrivateKey.generate(suite).private_bytes()


def _check_sources(checks: Checks) -> None:
    """Two secrets of a kind differ, whatever is known of clocks and seeds."""
    for kind, make in _kinds().items():
        with _standing():
            one = make()
        with _standing():
            other = make()
        checks.must(f"a {kind} follows from no clock and no seed", one != other)
        checks.must(f"every byte is drawn of a new {kind}", _fresh([make() for _ in range(_MANY)]))


def _fresh(drawn: Sequence[bytes]) -> bool:
    """Of so many no two places have the same bytes throughout, and none stands still."""
    places = list(zip(*drawn, strict=True))
    return len(set(places)) == len(places) and all(len(set(place)) > 1 for place in places)


@contextmanager
def _standing() -> Iterator[None]:
    """Let all clocks stand, and seed the common generators, for as long as a block runs."""
    before, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002  # put back below
    with ExitStack() as stack:
        stack.enter_context(clocks_at(lambda: START))
        random.seed(_SEED)
        np.random.seed(_SEED)  # noqa: NPY002  # what nothing should draw from
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpys)  # noqa: NPY002  # as it was


def _check_nonces(checks: Checks) -> None:
    """One row that is sealed again at one place has another nonce, after a restart as well."""
    raw, place = BatchKey.generate(), b"place"
    keys = (BatchKey(raw), BatchKey(raw))
    nonces = [key.seal(_ROW, place)[:_NONCE_BYTES] for key in keys for _ in range(2)]
    checks.must("a row has another nonce each time it is sealed", len(set(nonces)) == len(nonces))
    state_key = StateKey(raw, Path("key"))
    sealed = {state_key.seal("name", _ROW) for _ in range(2)}
    checks.must("a secret has another nonce each time it is sealed", len(sealed) > 1)
    rows = [keys[0].seal(_ROW, place)[:_NONCE_BYTES] for _ in range(_MANY)]
    start = -(_NONCE_BYTES + len(_ROW) + _TAG_BYTES)
    sealed_secrets = [state_key.seal("name", _ROW)[start:] for _ in range(_MANY)]
    checks.must(
        "every byte is drawn of a nonce",
        _fresh(rows) and _fresh([one[:_NONCE_BYTES] for one in sealed_secrets]),
    )


def _check_places(checks: Checks) -> None:
    """What is sealed for one place opens there, with the same key and unchanged, or nowhere."""
    raws = (BatchKey.generate(), BatchKey.generate())
    (row_key, other_row_key), (state_key, other_state_key) = (
        [BatchKey(raw) for raw in raws],
        [StateKey(raw, Path("key")) for raw in raws],
    )
    row, secret = row_key.seal(_ROW, b"a"), state_key.seal("a", _ROW)
    flipped = changed(row, 0)
    opened = [
        _opened(row_key.open, row, b"a"),
        _opened(lambda sealed, name: state_key.open(name, sealed), secret, "a"),
    ]
    strange = [
        *(_opened(row_key.open, row, place) for place in (b"b", b"", b"a\0")),
        _opened(row_key.open, row_key.seal(_ROW), b"a"),
        _opened(row_key.open, flipped, b"a"),
        _opened(row_key.open, row[:-1], b"a"),
        _opened(other_row_key.open, row, b"a"),
        *(
            _opened(lambda sealed, name: state_key.open(name, sealed), secret, name)
            for name in ("b", "", "aa")
        ),
        _opened(lambda sealed, name: other_state_key.open(name, sealed), secret, "a"),
    ]
    checks.must(
        "rows and secrets open at the place that they were sealed for, and at no other",
        opened == [_ROW] * len(opened) and strange == [None] * len(strange),
    )


def _opened(opens: Callable[[bytes, P], bytes], sealed: bytes, place: P) -> bytes | None:
    """Open something at a place; None if it does not open."""
    try:
        return opens(sealed, place)
    except (DamagedStorageError, SettingsError):
        return None


def _check_equal_plaintexts(checks: Checks) -> None:
    """Of equal plaintexts no two ciphertexts are the same, in one call and in the next."""
    context = report_context(TaskDigest(bytes(DIGEST_BYTES)))
    for suite, spec in SUITES.items():
        key = HpkePrivateKey.generate(suite).public_key()
        calls = [seal_each(key, _ROW * 2, len(_ROW), context) for _ in range(2)]
        size = len(_ROW) + spec.overhead_bytes
        sealed = [one[start : start + size] for one in calls for start in (0, size)]
        checks.must("equal plaintexts are sealed apart", len(set(sealed)) == len(sealed))


def _check_suites(checks: Checks) -> None:
    """A suite that has another's lengths is another: what is called hybrid must be."""
    found = {}
    for suite, spec in SUITES.items():
        key = HpkePrivateKey.generate(suite).public_key()
        sealed = key.seal(_ROW, report_context(TaskDigest(bytes(DIGEST_BYTES))))
        found[suite] = (len(key.raw), len(sealed) - len(_ROW))
        checks.must("a suite is found by its own name", spec.name == suite == key.suite)
        named = {key_id(name, key.raw) for name in SUITES} | {key_id(f"{suite}2", key.raw)}
        checks.must("a key has another name in every suite", len(named) == len(SUITES) + 1)
    checks.must("every suite has the keys and seals of its name", found == _LENGTHS)


def _check_life(checks: Checks) -> None:
    """A key opens for its lifetime and as long as it is kept, and is then destroyed."""
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        state = StateDirectory.open(Path(folder) / "party")
        store = KeyStore(state, _SCHEDULE, former="former.key", suites=(_SUITE,))
        store.rotate(START, ())
        first, files = store.public_key(_SUITE), state.names("hpke-*.key")
        expires = START + _SCHEDULE.lifetime
        gone = expires + _SCHEDULE.keep
        for now in (expires - _SCHEDULE.overlap, expires, gone - 1.0):
            store.rotate(now, ())
        checks.must("a key is replaced after its lifetime", store.public_key(_SUITE) != first)
        checks.must("an expired key is kept for as long as is said", still_opens(store, first))
        store.rotate(gone, (first.key_id,))
        checks.must("nor is one destroyed that a task needs", still_opens(store, first))
        store.rotate(gone, ())
        left = set(files) & set(state.names("hpke-*.key"))
        checks.must(
            "an expired key is destroyed once it has been kept so long",
            bool(files) and not left and not still_opens(store, first),
        )


def _check_overlap(checks: Checks) -> None:
    """A party that was away when its next key was due publishes it as long before it is used."""
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        state = StateDirectory.open(Path(folder) / "party")
        store = KeyStore(state, _SCHEDULE, former="former.key", suites=(_SUITE,))
        store.rotate(START, ())
        first, late = store.public_key(_SUITE), START + 2 * _SCHEDULE.lifetime
        used = []
        for now in (late, late + _SCHEDULE.overlap - 1.0, late + _SCHEDULE.overlap):
            store.rotate(now, ())
            used.append(store.public_key(_SUITE))
        checks.must(
            "the next key is published for as long as is said before it is used",
            used[:2] == [first, first] and used[2] != first,
        )
        gone = late + _SCHEDULE.overlap + _SCHEDULE.keep
        store.rotate(gone)
        checks.must(
            "where it is not known what tasks need none is destroyed", still_opens(store, first)
        )
        store.rotate(gone, ())
        again = KeyStore(state, _SCHEDULE, former="former.key", suites=(_SUITE,))
        checks.must(
            "a ring that is read again holds the same keys",
            again.ring == store.ring and again.public_key(_SUITE) == used[2],
        )


def still_opens(store: KeyStore, key: HpkePublicKey) -> bool:
    """Say whether a party still has the private half."""
    try:
        store.private_key(key.suite, key.raw, whose="key")
    except UnknownKeyError:
        return False
    return True


class _WatchedPool(HpkePool):
    """Keeps who its workers were; they start with their first work, so none starts here."""

    def __init__(self) -> None:
        self.crews: list[ProcessPoolExecutor] = []
        super().__init__(1)

    def _start(self) -> ProcessPoolExecutor:
        self.crews.append(super()._start())
        return self.crews[-1]


def _check_workers(checks: Checks) -> None:
    """Workers that had a key in their hands get no more work once keys are to be forgotten."""
    pool = _WatchedPool()
    pool.forget_keys()
    try:
        pool.crews[0].submit(os.getpid)
        ended = False
    except RuntimeError:
        ended = True
    checks.must("no worker outlives the keys that it held", ended and len(pool.crews) > 1)
    for crew in pool.crews:
        crew.shutdown()


class _HerePool(HpkePool):
    """Does in this process what a worker would do: keys travel, and are kept, as there."""

    def _submit(self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work(*args, **kwargs))
        return done


def _check_travelling(checks: Checks) -> None:
    """One worker opens with several keys in turn, each time with the one that came along."""
    context = report_context(TaskDigest(bytes(DIGEST_BYTES)))
    pool, read = _HerePool(1), list[bool]()
    for suite, spec in SUITES.items():
        size = len(_ROW) + spec.overhead_bytes
        keys = [HpkePrivateKey.generate(suite) for _ in range(2)]
        for key, stranger in (keys, keys[::-1], keys):
            own, other = (one.public_key().seal(_ROW, context) for one in (key, stranger))
            for opened in (
                pool.open(key, own + other, size, context),
                pool.open_and(key, _as_it_is, own + other, size, context),
            ):
                read.append(opened.result().readable == b"\1\0")
    pool.close()
    checks.must("a worker opens with the key that comes with the work, and no other", all(read))


def _as_it_is(opened: Opened) -> Opened:
    return opened
