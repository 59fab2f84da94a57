"""Errors and warnings say which party or file is at fault."""

import socket
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import PeerError, SettingsError
from shuffledp.common.runtime.rpc import bind, reply
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import Tls, development_files
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.cli import app
from shuffledp.deploy.clients.user_agent import send
from tests.support.clients import contribute
from tests.support.services import Services


@pytest.mark.own_services
async def test_a_person_is_told_which_party_does_not_answer(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    """Each party on the way adds its sentence; the shuffler also logs the failure."""
    signed, address = await services.publish(), services.analyzer.address
    await services.analyzer.stop()
    with pytest.raises(PeerError) as caught:
        await reply(contribute(services, signed), "the agent")
    await services.start_analyzer(listen=address)

    said = str(caught.value).replace("UNAVAILABLE: nothing listens there", "UNAVAILABLE")
    assert said == (  # the cause is not known while the old connection ends
        "the agent cannot serve at the moment: the shuffler cannot serve at the moment: "
        "the analyzer does not answer (UNAVAILABLE). Nothing was saved or charged; try again"
    )
    assert "analyzer does not answer" in caplog.messages


async def test_a_person_whose_own_agent_does_not_run_is_told_so(tmp_path: Path) -> None:
    """The message contains the agent's address."""
    with pytest.raises(PeerError, match=r"^the user agent at unix:.*nobody does not answer"):
        await send(f"unix:{tmp_path}/nobody", TaskDigest(bytes(32)), 1, "")


async def test_a_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    """A stale socket is replaced, and no other kind of file."""
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(SettingsError, match="another process listens there"):
            bind(grpc.aio.server(), f"unix:{path}", None)
        assert path.is_socket()
    server = grpc.aio.server()
    assert f"unix:{path}" == bind(server, f"unix:{path}", None)
    await server.start()
    await server.stop(None)

    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SettingsError, match="the file is not a socket"):
        bind(grpc.aio.server(), f"unix:{tmp_path}/file", None)


def test_a_certificate_of_another_authority_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is only a warning, since an intermediate authority is possible."""
    clock = ManualClock()
    own = development_files(tmp_path / "one", "analyzer", clock)
    Tls.open(own, "analyzer", clock)
    assert [] == caplog.messages
    development_files(tmp_path / "two", "analyzer", clock)
    (tmp_path / "two" / "authority.pem").replace(tmp_path / "one" / "authority.pem")
    Tls.open(own, "analyzer", clock)

    assert ["certificate is not by tls_authority"] == caplog.messages


@pytest.mark.parametrize(("mode", "open_"), [(0o700, False), (0o755, False), (0o770, True)])
def test_a_state_directory_that_others_may_write_to_is_detected(
    tmp_path: Path, mode: int, *, open_: bool
) -> None:
    """Writers could plant keys; readers see only sealed secrets."""
    state = StateDirectory.open(tmp_path / "state")
    state.path.chmod(mode)

    assert open_ is state.is_open_to_others()


async def test_no_task_is_created_with_an_identity_as_shuffler_key(services: Services) -> None:
    """No envelope of such a task would ever open."""
    state = services.directory / "shuffler"
    draft = services.directory / "draft.toml"
    needed = "deadline = 1\ndelta = 1e-6\nn_min = 1\ntarget_size = 1\n"
    draft.write_text(needed, encoding="ascii")
    done = CliRunner().invoke(
        app,
        [
            *("task", "create", str(draft), "--address", f"analyzer={services.analyzer.address}"),
            *("--token-file", "none", "--shuffler-key", str(state / "identity.pub")),
        ],
    )

    assert isinstance(done.exception, SettingsError)
    assert "use envelope.pub" in str(done.exception)
