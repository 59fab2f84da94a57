"""An analyzer whose operator holds the development authority poses as the shuffler."""

from pathlib import Path

import pytest

from tests.support.clients import contribute, refusal
from tests.support.services import Services
from tests.support.tasks import draft


class _Impostor(Services):
    """A shuffler with a certificate of the right name and an identity of its own."""

    def __init__(self, real: Services, folder: Path) -> None:
        super().__init__(folder)
        (folder / "tls").symlink_to(real.directory / "tls")
        self.analyzer, self.identity = real.analyzer, real.identity


@pytest.mark.own_services
async def test_a_device_sends_nothing_to_an_impostor(services: Services, tmp_path: Path) -> None:
    """The task names the impostor's key; a device that pins the impostor would send to it."""
    folder = tmp_path / "impostor"
    folder.mkdir()
    impostor = _Impostor(services, folder)
    await impostor.start_shuffler()
    async with services.operator() as operator:
        signed, _ = await operator.publish_task(draft(impostor.shuffler_key))
    pinned, impostor.shuffler_identity = impostor.shuffler_identity, services.shuffler_identity
    await impostor.start_user_agent()
    status, message = await refusal(contribute(impostor, signed, "Ada"))
    await impostor.user_agent.stop()
    impostor.shuffler_identity = pinned
    await impostor.start_user_agent()

    assert "FAILED_PRECONDITION" == status
    assert "the task's shuffler_key is not signed by the shuffler identity" in message
    assert (await contribute(impostor, signed, "Bo")).sent
    await impostor.user_agent.stop()
    await impostor.shuffler.stop()
