"""
How services are started, and what they then do by themselves.

The analyzer and the shuffler are put together as they are deployed, and led through the life of
their keys on a clock of ours; only nobody listens at a port.
"""

import asyncio
import dataclasses
import gc
import logging
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import numpy as np

import analyzer.server
import shuffler.server
from analyzer.release import Releases
from analyzer.settings import AnalyzerSettings
from analyzer.storage.store import Store
from analyzer.storage.task_table import TaskLine
from common.crypto.hpke import HpkePrivateKey, HpkePublicKey
from common.crypto.key_ring import Schedule
from common.crypto.signing import SIGNATURE_BYTES, SignedTask, SigningIdentity
from common.errors import StorageError
from common.runtime.certificates import PARTIES
from common.runtime.key_store import KeyStore, Rotation
from common.runtime.service import Listener, Service
from common.runtime.tls import development_files
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.key_rules import still_opens
from deploy.audit.code.silence import check_silence
from deploy.audit.finding import Outcome
from deploy.audit.sample_task import sample_task
from deploy.audit.stand_ins.still_clock import START, StillClock
from shuffler.settings import ShufflerSettings

_SHARE: Final = 0.125
"""Of reports that may be refused: other than what the settings say without being told."""
_NOBODY: Final = "127.0.0.1:1"
_LOOKS: Final = 3
_TURNS: Final = 50
"""Of the event loop."""
_OWN: Final = 0o600


def play_startup(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Start each of them; whatever task is audited."""
    del audited, rng
    checks = Checks()
    disabled = logging.root.manager.disable
    logging.disable()  # keys that are destroyed are logged, and what fails once below
    try:
        with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
            asyncio.run(_started(checks, Path(folder)))
            _check_files(checks, Path(folder) / "tls")
        check_silence(checks)
    finally:
        logging.disable(disabled)
    finding = checks.finding(
        scenario="startup",
        title="How services are started, and what they do by themselves",
        heading="anonymity",
        coalition="whoever takes a disk",
        sentence="Analyzer and shuffler looked after their keys for as long as they ran: a key was "
        "replaced, kept while a task needed it, and then destroyed, and workers were told. The "
        "analyzer held batches to its own setting of refused reports. gRPC was kept from writing a "
        "log of its own, and files of keys for connections were closed to others.",
        advice="Do not collect with this version.",
    )
    return Outcome(findings=(finding,))


@dataclass(slots=True)
class _Seen:
    """What was put together at a start, and what of it runs."""

    clock: StillClock = field(default_factory=StillClock)
    rotations: list[tuple[Rotation, KeyStore]] = field(default_factory=list)
    running: list[Rotation] = field(default_factory=list)
    releases: list[dict[str, Any]] = field(default_factory=list)
    forgotten: int = 0
    """How often workers were told to forget keys."""


class _NoListener:
    """Stands where a server would."""

    address = _NOBODY

    async def stop(self) -> None:
        """Stop nothing."""

    async def close(self) -> None:
        """Close nothing: a channel to nobody."""


@asynccontextmanager
async def _running(start: Callable[[], Awaitable[Service]]) -> AsyncIterator[_Seen]:
    """Start a service on a clock, without its server, and let what it set going begin."""
    seen, nobody = _Seen(), _NoListener()
    of_rotation, of_releases, run = Rotation.__init__, Releases.__init__, Rotation.run

    async def listen(*_: object, **__: object) -> _NoListener:
        return nobody

    def rotation(self: Rotation, **given: Any) -> None:  # noqa: ANN401  # as it takes them
        of_rotation(self, **given)
        forget = given["memory"].forget_keys

        def told() -> None:
            seen.forgotten += 1
            forget()

        given["memory"].forget_keys = told
        seen.rotations.append((self, given["keys"]))

    def releases(self: Releases, **given: Any) -> None:  # noqa: ANN401  # likewise
        of_releases(self, **given)
        seen.releases.append(given)

    async def running(self: Rotation, *given: float) -> None:
        seen.running.append(self)
        await run(self, *given)

    with ExitStack() as stack:
        for module in (analyzer.server, shuffler.server):
            stack.enter_context(patch.object(module, "SystemClock", lambda: seen.clock))
        stack.enter_context(patch.object(shuffler.server, "open_channel", lambda *_, **__: nobody))
        stack.enter_context(patch.object(Listener, "start", listen))
        stack.enter_context(patch.object(Rotation, "__init__", rotation))
        stack.enter_context(patch.object(Rotation, "run", running))
        stack.enter_context(patch.object(Releases, "__init__", releases))
        service = await start()
        try:
            await asyncio.sleep(0)
            yield seen
        finally:
            await service.stop()


async def _started(checks: Checks, folder: Path) -> None:
    """Start both services, and lead each through the life of a key."""
    settings = AnalyzerSettings(
        state_directory=folder / "analyzer",
        plaintext=True,
        opening_processes=1,
        most_refused_share=_SHARE,
    )
    async with _running(lambda: analyzer.server.start(settings)) as seen:
        checks.must(
            "the analyzer holds batches to its own setting of refused reports",
            [given["most_refused_share"] for given in seen.releases] == [_SHARE],
        )
        store = seen.releases[0]["store"]
        await _led(checks, "analyzer", seen, settings.schedule(), store)
    other = ShufflerSettings(
        state_directory=folder / "shuffler",
        plaintext=True,
        opening_processes=1,
        analyzer=_NOBODY,
        analyzer_identity=SigningIdentity.generate().public_identity().raw.hex(),
    )
    async with _running(lambda: shuffler.server.start(other)) as seen:
        await _led(checks, "shuffler", seen, other.schedule(), None)
    await _looks_again(checks)


async def _led(
    checks: Checks,
    party: str,
    seen: _Seen,
    schedule: Schedule,
    store: Store | None,
) -> None:
    """Let time pass; where there is a store, a task needs the first key up to its deadline."""
    [(rotation, keys)] = seen.rotations
    checks.must(f"the {party} looks after its keys while it runs", seen.running == [rotation])
    first, expires = keys.public_key(), START + schedule.lifetime
    gone = expires + schedule.keep
    if store is not None:
        task = dataclasses.replace(_task(), analyzer_key=first.raw)
        signed = SignedTask(task_bytes=task.to_bytes(), signature=bytes(SIGNATURE_BYTES))
        await store.add_task(signed, TaskLine.of(task))
    for seen.clock.seconds in (expires - schedule.overlap, expires, gone - 1.0):
        await rotation.do_what_is_due()
    checks.must(f"the {party} replaces its key in time", keys.public_key() != first)
    checks.must(
        f"the {party} keeps an expired key for as long as it says",
        still_opens(keys, first) and not seen.forgotten,
    )
    if store is not None:
        seen.clock.seconds = gone
        await rotation.do_what_is_due()
        checks.must(f"the {party} keeps a key that a task needs", still_opens(keys, first))
        gone = task.deadline + schedule.keep + 1.0
    seen.clock.seconds = gone
    await rotation.do_what_is_due()
    checks.must(
        f"the {party} destroys an expired key that no task needs", not still_opens(keys, first)
    )
    checks.must(f"no destroyed key stays with the {party}", not _is_in_memory(first))
    checks.must(f"workers of the {party} are told of a destroyed key", seen.forgotten > 0)


@cache
def _task() -> Task:
    return sample_task(protocol="ldp-grr", domain_size=2, local_epsilon=1.0)


def _is_in_memory(key: HpkePublicKey) -> bool:
    """Say whether a private half is anywhere in this process, whoever holds it."""
    gc.collect()
    held = [one for one in gc.get_objects() if type(one) is HpkePrivateKey]
    return any(one.suite == key.suite and one.public_key() == key for one in held)


class _FailsOnce(Rotation):
    """Has nothing to do, and fails at its first look."""

    def __init__(self) -> None:
        self.looks = 0

    async def do_what_is_due(self) -> None:
        """Count."""
        self.looks += 1
        if self.looks == 1:
            raise StorageError("nothing can be written")


async def _looks_again(checks: Checks) -> None:
    rotation = _FailsOnce()
    running = asyncio.create_task(rotation.run(0.0))
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    checks.must(
        "who looks after keys looks again and again, after a failure too", rotation.looks > _LOOKS
    )


def _check_files(checks: Checks, folder: Path) -> None:
    """Files that a development authority makes, and those that it issues."""
    for party in PARTIES:
        development_files(folder, party, StillClock())
    keys = sorted(folder.glob("*.key"))
    checks.must(
        "nobody else may read keys of connections",
        len(keys) == len(PARTIES) + 1
        and all(stat.S_IMODE(path.stat().st_mode) == _OWN for path in keys),
    )
