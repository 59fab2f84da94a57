"""Key rotation in the services as deployed, on a manual clock."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import analyzer.server
import shuffler.server
from analyzer.settings import AnalyzerSettings
from common.crypto.hpke import HpkePublicKey
from common.crypto.key_ring import DAY
from common.crypto.signing import SigningIdentity
from common.errors import UnknownKeyError
from common.runtime.key_store import KeyStore, Rotation
from deploy.audit.harness.clock import ManualClock
from shuffler.settings import ShufflerSettings

_PATIENCE: Final = 30.0


class _QuickRotation(Rotation):
    """Rotates every millisecond."""

    async def run(self, tick: float = 0.001) -> None:
        """See Rotation."""
        await super().run(tick)


class _Started:
    """The parts that a composition root makes, on a manual clock."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.made: dict[str, dict[str, Any]] = {}
        self.forgotten = 0
        monkeypatch.setattr(module, "SystemClock", lambda: self.clock)
        monkeypatch.setattr(module, "Rotation", self._rotation)
        for name in {"Releases", "InclusionProofs"} & set(vars(module)):
            monkeypatch.setattr(module, name, partial(self._noted, name, getattr(module, name)))

    def _noted(self, name: str, make: Callable[..., Any], **given: Any) -> Any:
        self.made[name] = given
        return make(**given)

    def _rotation(self, *, forget: Callable[[], None], **given: Any) -> Rotation:
        def count_and_forget() -> None:
            self.forgotten += 1
            forget()

        return _QuickRotation(**self.made.setdefault("Rotation", given), forget=count_and_forget)

    def opens(self, public: HpkePublicKey) -> bool:
        """Return whether the service still has a private key."""
        try:
            self.keys.private_key(public.suite, public.raw, whose="key")
        except UnknownKeyError:
            return False
        return True

    @property
    def keys(self) -> KeyStore:
        """The keys that are rotated."""
        keys: KeyStore = self.made["Rotation"]["keys"]
        return keys


async def _until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not wanted():
            await asyncio.sleep(0.001)


@pytest.fixture(params=[analyzer.server, shuffler.server])
async def started(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[_Started]:
    """Yield a running service that rotates its keys without a pause."""
    fields: dict[str, Any] = {
        "state_directory": tmp_path / "state",
        "plaintext": True,
        "opening_processes": 1,
    }
    if request.param is analyzer.server:
        settings: Any = AnalyzerSettings(**fields, most_refused_share=0.125)
    else:
        identity = SigningIdentity.generate().public_identity().raw.hex()
        settings = ShufflerSettings(**fields, analyzer="127.0.0.1:1", analyzer_identity=identity)
        inclusion = tmp_path / "state" / "inclusion"
        inclusion.mkdir(parents=True)
        inclusion.parent.chmod(0o700)
        (inclusion / f"{'0' * 64}.commitment").write_bytes(bytes(8))
    found = _Started(request.param, monkeypatch)
    service = await request.param.start(settings)
    yield found
    await service.stop()


async def test_a_running_service_follows_its_settings_and_rotates_its_keys(
    started: _Started,
) -> None:
    """A key is replaced, kept, and destroyed; workers forget it. Expired proofs are deleted."""
    if "Releases" in started.made:
        assert 0.125 == started.made["Releases"]["most_refused_share"]
    else:
        inclusions = started.made["InclusionProofs"]
        assert 30 * DAY == inclusions["keep_seconds"]
        await _until(lambda: not list(inclusions["directory"].iterdir()))
    first, begin = started.keys.public_key(), started.clock.seconds
    for day in (88, 90):
        started.clock.seconds = begin + day * DAY
        await asyncio.sleep(0.05)
    await _until(lambda: started.keys.public_key() != first)
    assert started.opens(first)
    assert 0 == started.forgotten
    started.clock.seconds = begin + 121 * DAY

    await _until(lambda: started.forgotten > 0)
    assert not started.opens(first)
