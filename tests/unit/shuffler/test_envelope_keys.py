from pathlib import Path

import pytest

from common.crypto.hpke import DEFAULT_SUITE, SUITES, key_id
from common.crypto.key_ring import DAY, KeyState
from common.errors import TaskError
from common.messages.batch import BatchState
from common.runtime.key_store import KeyStore
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from shuffler.server import publish_keys
from tests.support.keys import SCHEDULE
from tests.support.shuffler_core import CASE, Shuffler


async def test_an_expired_key_is_needed_until_the_batch_is_over(shuffler: Shuffler) -> None:
    """It is destroyed afterwards, not before."""
    key = key_id(CASE.task.suite, CASE.task.shuffler_key)
    await shuffler.submit(4)
    assert {key} == shuffler.rounds.needed_keys()
    late = shuffler.clock.now() + 300 * DAY
    assert not shuffler.keys.rotate(late, shuffler.rounds.needed_keys())

    await shuffler.submit(1)
    await shuffler.deliveries.advance()
    assert BatchState.ERASED is await shuffler.state()
    assert set() == shuffler.rounds.needed_keys()
    assert shuffler.keys.rotate(late, shuffler.rounds.needed_keys())


async def test_no_key_is_destroyed_while_a_batch_cannot_be_resumed(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that cannot read its task keeps the key for one that can."""
    await shuffler.submit(3)
    shuffler.spool.close()

    def unreadable(_: bytes) -> Task:
        raise TaskError("of a later version")

    with monkeypatch.context() as earlier:
        earlier.setattr(Task, "from_bytes", unreadable)
        await shuffler.start()
        late = shuffler.clock.now() + 300 * DAY
        assert not shuffler.keys.rotate(late, shuffler.rounds.needed_keys())
        await shuffler.restart()
    await shuffler.submit(1)


def _published(path: Path) -> dict[str, str]:
    return {file.name: file.read_text("ascii") for file in path.glob("envelope*.pub")}


def test_active_and_pending_keys_are_published(tmp_path: Path) -> None:
    """envelope.pub is the default suite's active key; others have the suite in their name."""
    state = StateDirectory.open(tmp_path / "state")
    keys = KeyStore(state, SCHEDULE)
    seen = []
    for day in (0, 88, 90):
        keys.rotate(day * DAY, set())
        publish_keys(state, keys)
        seen.append(_published(state.path))
    names = {
        "envelope.pub",
        *(f"envelope-{suite}.pub" for suite in SUITES if suite != DEFAULT_SUITE),
    }

    assert [names, names | {name[:-4] + ".pending.pub" for name in names}, names] == [
        set(files) for files in seen
    ]
    for name in names:
        assert seen[0][name] == seen[1][name]
        assert seen[1][name[:-4] + ".pending.pub"] == seen[2][name]
    assert keys.public_key().raw.hex() == seen[2]["envelope.pub"]
    assert keys.find(DEFAULT_SUITE, KeyState.PENDING) is None


async def test_a_batch_key_is_stored_encrypted(shuffler: Shuffler) -> None:
    """Its file does not contain the raw key."""
    await shuffler.submit(1)
    [path] = shuffler.key_files()
    [found] = shuffler.rounds.unfinished()

    assert path.read_bytes().startswith(b"shuffledp sealed secret v1")
    assert found.key._raw not in path.read_bytes()
