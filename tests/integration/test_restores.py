"""A device that is restored from the backup that the operators' page tells to make."""

import asyncio
import shutil

import pytest

from common.errors import SettingsError
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
