"""Settings, randomness and key rotation in the services as deployed, on a manual clock."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import shuffledp.analyzer.server
import shuffledp.shuffler.server
import shuffledp.user_agent.server
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.hpke import HpkePublicKey
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.randomness import secure_generator
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError, UnknownKeyError
from shuffledp.common.runtime.key_store import KeyStore, Rotation
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.user_agent.settings import UserAgentSettings

_PATIENCE: Final = 30.0
_CAPS: Final = {
    "local_epsilon_cap": 3.0,
    "total_local_epsilon_cap": 17.0,
    "total_central_epsilon_cap": 0.5,
    "total_delta_cap": 1e-5,
    "lasting_responses": True,
}
_KEY_DAYS: Final = {"key_lifetime_days": 10.0, "key_overlap_days": 4.0, "key_keep_days": 3.0}
_FOLLOWED: Final[dict[ModuleType, tuple[str, dict[str, Any]]]] = {
    shuffledp.analyzer.server: ("AnalyzerCore", {"most_refused_share": 0.125}),
    shuffledp.shuffler.server: ("ShufflerCore", {"minimum_batch": 7, "most_dummies": 11}),
    shuffledp.user_agent.server: ("Agent", _CAPS),
}
"""For each service, the part that receives its settings, and values unlike the defaults."""


class _QuickRotation(Rotation):
    """Rotates every millisecond."""

    async def run(self, tick: float = 0.001) -> None:
        """See Rotation."""
        await super().run(tick)


class _CountingPool(HpkePool):
    """Counts how often its workers forget their keys."""

    forgotten = 0

    def forget_keys(self) -> None:
        """See HpkePool."""
        self.forgotten += 1
        super().forget_keys()


class _Started:
    """The parts that a composition root makes, on a manual clock."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.made: dict[str, Any] = {}
        monkeypatch.setattr(module, "SystemClock", lambda: self.clock)
        monkeypatch.setattr(module, "HpkePool", _CountingPool, raising=False)
        monkeypatch.setattr(module, "Rotation", _QuickRotation, raising=False)
        for name, make in list(vars(module).items()):
            takes = getattr(getattr(make, "__init__", None), "__annotations__", {})
            if "rng" in takes or name == "Rotation":
                monkeypatch.setattr(module, name, partial(self._noted, name, make))

    def _noted(self, name: str, make: Callable[..., Any], **given: Any) -> Any:
        self.made[name] = make(**given)
        return self.made[name]

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
        keys: KeyStore = self.made["Rotation"].keys
        return keys


async def _until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not wanted():
            await asyncio.sleep(0.001)


@pytest.fixture(params=[shuffledp.analyzer.server, shuffledp.shuffler.server])
async def started(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[_Started]:
    """Yield a running service that rotates its keys without a pause."""
    fields: dict[str, Any] = {"state_directory": tmp_path / "state", "plaintext": True}
    fields |= _FOLLOWED[request.param][1]
    if request.param is not shuffledp.user_agent.server:
        fields |= {"state_key": tmp_path / "own.key", **_KEY_DAYS}
    identity = SigningIdentity.generate().public_identity().raw.hex()
    if request.param is shuffledp.analyzer.server:
        settings: Any = AnalyzerSettings(**fields)
    elif request.param is shuffledp.user_agent.server:
        other = SigningIdentity.generate().public_identity().raw.hex()
        fields |= {"analyzer_identity": identity, "shuffler_identity": other}
        fields |= {"shuffler": "127.0.0.1:1", "allow_tasks_without_tokens": True}
        fields |= {"allow_unlogged_tasks": True}
        settings = UserAgentSettings(**fields)
    else:
        fields |= {"keep_inclusion_days": 40, "analyzer": "127.0.0.1:1"}
        settings = ShufflerSettings(**fields, analyzer_identity=identity)
        proof = tmp_path / "state" / "blocks" / f"proof-{'0' * 64}"
        proof.mkdir(parents=True)
        proof.parent.parent.chmod(0o700)
        (proof / "commitment").write_bytes(bytes(8))
    found = _Started(request.param, monkeypatch)
    service = await request.param.start(settings)
    yield found
    await service.stop()


@pytest.mark.parametrize(("started", "follows"), _FOLLOWED.items(), indirect=["started"])
async def test_a_running_service_follows_its_settings_and_draws_securely(
    started: _Started, follows: tuple[str, dict[str, Any]]
) -> None:
    """The parts receive settings unlike the defaults, and only ChaCha20 generators."""
    name, values = follows
    part = started.made[name]
    following = getattr(part, "batches", getattr(part, "policy", part))
    assert values == {key: getattr(following, key) for key in values}
    drawing = [part.rng for part in started.made.values() if hasattr(part, "rng")]
    assert {type(secure_generator())} == {type(rng) for rng in drawing}


@pytest.mark.usefixtures("started")
def test_a_running_service_seals_its_secrets_under_its_state_key(tmp_path: Path) -> None:
    """The settings name the key's file; without it, the secrets do not open."""
    assert [tmp_path / "own.key"] == list(tmp_path.glob("*.key"))
    with pytest.raises(SettingsError, match="is sealed under it"):
        StateDirectory.open(tmp_path / "state").secret("identity.key", bytes)


async def test_a_running_service_rotates_its_keys(started: _Started) -> None:
    """The settings give the days; the pool forgets destroyed keys, and old proofs are deleted."""
    if "ShufflerCore" in started.made:
        core = started.made["ShufflerCore"]
        assert 40 * DAY == core.inclusions.keep_seconds
        await _until(lambda: not core.blocks.folders())
    pool = started.made["Rotation"].forget.__self__
    first, begin = started.keys.public_key(), started.clock.seconds
    for day in (6, 10):
        started.clock.seconds = begin + day * DAY
        await asyncio.sleep(0.05)
    await _until(lambda: started.keys.public_key() != first)
    assert started.opens(first)
    assert 0 == pool.forgotten
    started.clock.seconds = begin + 13.1 * DAY

    await _until(lambda: pool.forgotten > 0)
    assert not started.opens(first)
