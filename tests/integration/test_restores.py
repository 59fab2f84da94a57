"""Parties that are restored from a backup, wholly or in part."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from shuffledp.audit.harness.services import files_of
from shuffledp.common.errors import SettingsError, WireError
from shuffledp.common.runtime.key_store import renew_identity
from shuffledp.common.runtime.state_directory import StateDirectory
from tests.support.clients import contribute, refusal
from tests.support.command_line import run_command
from tests.support.services import Services


@pytest.mark.own_services
async def test_a_restored_device_starts_after_a_confirmation_and_answers_no_task_twice(
    services: Services,
) -> None:
    """The confirmation is used up by the start."""
    first, second = await services.publish(), await services.publish(domain_size=50)
    state = services.directory / "user_agent"
    await contribute(services, first, "Ada")
    await services.user_agent.stop()
    copy = services.directory / "backup"
    await asyncio.to_thread(shutil.copyfile, state / "budget.sqlite", copy)
    await services.start_user_agent()
    await contribute(services, second, "Ada")
    await services.user_agent.stop()
    for old in state.glob("budget.sqlite*"):
        old.unlink()
    shutil.copyfile(copy, state / "budget.sqlite")

    with pytest.raises(SettingsError, match="keys confirm-restore"):
        await services.start_user_agent()
    status, _, complaint = await run_command("keys", "confirm-restore", str(state))
    assert 0 == status, complaint
    await services.start_user_agent()
    code, details = await refusal(contribute(services, second, "Ada"))
    assert ("FAILED_PRECONDITION", True) == (code, "it answers no task twice" in details)
    assert not (state / "restore-confirmed").exists()


_CONFIRM: Final = "keys confirm-restore"
_RENEW: Final = "keys identity .* --renew"
_PAIRS: Final = [
    ("analyzer", ["analyzer.sqlite*"], _CONFIRM),
    ("analyzer", ["analyzer.sqlite*", "keys.json", "hpke-*", "operator.token"], _CONFIRM),
    ("analyzer", ["keys.json", "hpke-*"], _CONFIRM),
    ("analyzer", ["identity.*"], _RENEW),
    ("analyzer", ["identity.key"], _RENEW),
    ("shuffler", ["spool.sqlite*"], _CONFIRM),
    ("shuffler", ["spool.sqlite*", "batch-*", "keys.json", "hpke-*", "envelope*"], _CONFIRM),
    ("shuffler", ["keys.json", "hpke-*"], _CONFIRM),
    ("shuffler", ["keys.json", "hpke-*", "envelope*"], _CONFIRM),
    ("shuffler", ["identity.*"], _RENEW),
    ("shuffler", ["witness.key"], "remove witness.pub"),
    ("shuffler", ["witness-*"], "remove witness.key and witness.pub"),
    ("issuer", ["issuer.sqlite*"], _CONFIRM),
    ("issuer", ["issuer.sqlite*", "token-*"], _CONFIRM),
    ("issuer", ["token-*"], "erase the rows of issuer.sqlite"),
    ("issuer", ["identity.*"], _RENEW),
    ("user_agent", ["charges.sqlite*"], _CONFIRM),
    ("user_agent", ["*.sqlite*"], _CONFIRM),
    ("user_agent", ["*.sqlite*", "permanent.key"], _CONFIRM),
    ("user_agent", ["permanent.key"], "restore it from a backup"),
]
"""A party, the files that a restore left out, and the way out that the refusal names."""


async def test_a_start_that_failed_does_not_hinder_the_next(tmp_path: Path) -> None:
    """Its settings are wrong, and the identity was made before; nothing is lost yet."""
    services = Services(tmp_path)
    renew_identity(StateDirectory.open(tmp_path / "analyzer"))
    for wrong in ({"witnesses": [_NO_WITNESS]}, {"listen": "nowhere.invalid:1"}):
        with pytest.raises((SettingsError, WireError), match=r"verifier key|nowhere"):
            await services.start_analyzer(**wrong)
    await services.start_analyzer()
    await services.analyzer.stop()


_NO_WITNESS: Final = {"address": "127.0.0.1:1", "key": "none"}
_KEYS: Final = ("identity", "hpke", "keys", "envelope", "witness")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def used(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    """Stopped services, whose every file has been of use."""
    made = Services(tmp_path_factory.mktemp("used"), ("Ada",))
    await made.start_analyzer()
    await made.start_shuffler()
    await made.start_issuer(analyzer_identity=made.identity)
    await made.create_token_key(int(time.time()) + 10**6)
    await made.start_user_agent(lasting_responses=True, allow_tasks_without_tokens=True)
    await contribute(made, await made.publish(), "Ada")
    yield made
    await made.stop()


async def _restart(used: Services, directory: Path, party: str) -> None:
    """Start and stop one party on copied files."""
    copied = Services(directory, ("Ada",))
    vars(copied).update({**vars(used), "directory": directory})
    changes: dict[str, Any] = {"listen": "127.0.0.1:0"}
    if party == "user_agent":
        changes |= {"lasting_responses": True, "allow_tasks_without_tokens": True}
    await getattr(copied, f"start_{party}")(**changes)
    await getattr(copied, party).stop()


@pytest.mark.parametrize(("party", "missing", "way_out"), _PAIRS)
async def test_a_partial_restore_is_refused_until_the_operator_gives_the_rest_up(
    used: Services, tmp_path: Path, party: str, missing: list[str], way_out: str
) -> None:
    """Files that belong together are no first start if some are missing; nothing is replaced."""
    directory = tmp_path / "restored"
    await asyncio.to_thread(shutil.copytree, used.directory, directory)
    state = StateDirectory.open(directory / party)
    for path in [path for pattern in missing for path in state.path.glob(pattern)]:
        path.unlink()
    left = files_of(state.path)
    with pytest.raises(SettingsError, match=way_out):
        await _restart(used, directory, party)
    after = files_of(state.path)

    assert [] == [name for name in after if name.startswith(_KEYS) and name not in left]
    assert all(after[name] == left[name] for name in left if name.endswith(".key"))
    if way_out == _CONFIRM:
        status, _, complaint = await run_command("keys", "confirm-restore", str(state.path))
        assert 0 == status, complaint
        for path in (*state.path.glob("batch-*"), *state.path.glob("token-*")):
            path.unlink()  # of a database that is lost: a refusal of their own names them
    elif way_out == _RENEW:
        renew_identity(StateDirectory.open(state.path))
    else:
        return
    for _ in range(2):
        await _restart(used, directory, party)
    assert not (state.path / "restore-confirmed").exists()
