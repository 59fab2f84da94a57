import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

import analyzer.server
import shuffler.server
from analyzer.settings import AnalyzerSettings
from common.crypto.hpke import HpkePublicKey
from common.crypto.key_ring import DAY
from common.crypto.signing import SigningIdentity
from common.errors import UnknownKeyError
from common.runtime.key_store import KeyStore
from shuffler.settings import ShufflerSettings
from tests.support.started import Started

_PATIENCE: Final = 30.0


@pytest.fixture(params=["analyzer", "shuffler"])
async def started(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Started]:
    """Yield a running service that rotates its keys without a pause."""
    state = tmp_path / "state"
    fields: dict[str, Any] = {"state_directory": state, "plaintext": True, "opening_processes": 1}
    if request.param == "analyzer":
        found = Started(analyzer.server, monkeypatch)
        found.note("Releases")
        service: Any = await analyzer.server.start(
            AnalyzerSettings(**fields, most_refused_share=0.125)
        )
    else:
        found = Started(shuffler.server, monkeypatch)
        found.note("InclusionProofs")
        identity = SigningIdentity.generate().public_identity().raw.hex()
        inclusion = state / "inclusion"
        inclusion.mkdir(parents=True, mode=0o700)
        state.chmod(0o700)
        for ending in ("leaves", "commitment"):
            (inclusion / f"{'0' * 64}.{ending}").write_bytes(bytes(8))
        service = await shuffler.server.start(
            ShufflerSettings(**fields, analyzer="127.0.0.1:1", analyzer_identity=identity)
        )
        found.made["files"] = {"inclusion": inclusion}
    yield found
    await service.stop()


async def _until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not wanted():
            await asyncio.sleep(0.001)


def _opens(keys: KeyStore, public: HpkePublicKey) -> bool:
    try:
        keys.private_key(public.suite, public.raw, whose="key")
    except UnknownKeyError:
        return False
    return True


async def test_a_running_service_rotates_its_keys(started: Started) -> None:
    """A key is replaced, kept, and destroyed; workers forget it."""
    first, begin = started.keys.public_key(), started.clock.seconds
    for day in (88, 90):
        started.clock.seconds = begin + day * DAY
        await asyncio.sleep(0.05)
    await _until(lambda: started.keys.public_key() != first)
    assert _opens(started.keys, first)
    assert 0 == started.forgotten
    started.clock.seconds = begin + 121 * DAY

    await _until(lambda: started.forgotten > 0)
    assert not _opens(started.keys, first)


async def test_a_service_follows_its_settings(started: Started) -> None:
    """The analyzer's refused share, and the shuffler's time to keep inclusion proofs."""
    if "Releases" in started.made:
        assert 0.125 == started.made["Releases"]["most_refused_share"]
        return
    assert 30 * DAY == started.made["InclusionProofs"]["keep_seconds"]
    folder = started.made["files"]["inclusion"]
    await _until(lambda: not list(folder.iterdir()))
