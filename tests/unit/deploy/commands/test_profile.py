from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.deploy.commands.connection import connections_of, read_profile
from tests.support.command_line import shown


def _state(folder: Path) -> Path:
    """Write the files that three running services leave in their state directories."""
    for name in ("analyzer/operator.token", "shuffler/operator.token", "tls/authority.pem"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("a token\n", encoding="ascii")
    (folder / "analyzer" / "address").write_text("127.0.0.1:7001", encoding="ascii")
    (folder / "shuffler" / "address").write_text("127.0.0.1:7002", encoding="ascii")
    return folder


def test_init_writes_addresses_and_files_of_the_state_directories(tmp_path: Path) -> None:
    """A second run needs --force, and a folder without services is refused."""
    state, profile = _state(tmp_path / "state"), tmp_path / "shuffledp.toml"
    command = ["init", str(state), "--output", str(profile)]

    shown(*command)
    assert {
        "analyzer": "127.0.0.1:7001",
        "shuffler": "127.0.0.1:7002",
        "analyzer_token_file": str(state / "analyzer" / "operator.token"),
        "shuffler_token_file": str(state / "shuffler" / "operator.token"),
        "authority": str(state / "tls" / "authority.pem"),
    } == read_profile(profile)
    with pytest.raises(SettingsError, match="exists; --force replaces it"):
        shown(*command)
    shown(*command, "--force")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match="has no service state"):
        shown("init", str(tmp_path / "empty"))


def test_init_reads_the_secrets_of_a_compose_project(tmp_path: Path) -> None:
    """Addresses are given: services have names in its networks."""
    files = {"analyzer_token_file", "shuffler_token_file", "authority", "certificate"}
    for name in ("analyzer.token", "shuffler.token", "authority.pem", "operator.pem"):
        (tmp_path / name).write_text("x", encoding="ascii")
    profile = tmp_path / "profile.toml"
    shown("init", str(tmp_path), "--address=analyzer=analyzer:7001", "--output", str(profile))

    assert {"analyzer", *files} == set(read_profile(profile))


def test_a_command_takes_its_connection_from_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option wins over the environment and the file; a command that asks none refuses it."""
    profile = tmp_path / "profile.toml"
    profile.write_text('analyzer = "127.0.0.1:1"\nanalyzer_token_file = "none.token"\n')
    command = ("--profile", str(profile), "task", "list")
    third = "--token-file=third.token"

    with pytest.raises(SettingsError, match=f"^{tmp_path}/none.token"):
        shown(*command)
    monkeypatch.setenv("SHUFFLEDP_PROFILE_ANALYZER_TOKEN_FILE", "other.token")
    with pytest.raises(SettingsError, match=r"^other.token"):
        shown(*command)
    for words in ((*command, third), (command[0], command[1], third, "task", "list")):
        with pytest.raises(SettingsError, match=r"^third.token"):
            shown(*words)
    for name, *more in (("load", "local"), ("demo",), ("keys show", "k")):
        with pytest.raises(UsageError, match=f"^drop --profile: {name} does not use it$"):
            shown(command[0], command[1], *name.split(), *more)


def test_a_profile_of_the_environment_is_named_and_read_only_where_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder a relative path leads nowhere; `up` and `demo` need no profile."""
    monkeypatch.setenv("SHUFFLEDP_PROFILE", str(tmp_path / "none.toml"))

    with pytest.raises(SettingsError, match=r"none.toml cannot be .* SHUFFLEDP_PROFILE names"):
        shown("task", "list")
    with pytest.raises(SettingsError, match=r"other.toml cannot be read: [^.]*$"):
        shown("--profile", str(tmp_path / "other.toml"), "task", "list")
    with pytest.raises(UsageError, match="over HTTPS only"):
        shown("up", "--host", "poll.example")


async def test_each_service_gets_its_own_token_unless_one_is_typed(tmp_path: Path) -> None:
    """What is missing is named with its key, its option and the command that writes a profile."""
    profile = tmp_path / "profile.toml"
    profile.write_text('analyzer_token_file = "a"\nshuffler_token_file = "s"\n')
    typed = [f"{party}=127.0.0.1:1" for party in ("analyzer", "shuffler", "relay")]
    connections = connections_of(profile, typed)

    for name, open_channel in (("a", connections.analyzer), ("s", connections.shuffler)):
        with pytest.raises(SettingsError, match=f"^{tmp_path / name} cannot be read"):
            open_channel()
    await connections.shuffler(operator=False).__aexit__()
    rule = "of the relay: use --token-file FILE, or set `relay_token_file` .* `shuffledp init"
    with pytest.raises(UsageError, match=rule):
        connections.shuffler(relay=True)
    with pytest.raises(UsageError, match=r"=HOST:PORT, or set `analyzer` .* shuffledp-local/"):
        connections_of(profile, [*typed, "analyzer="]).analyzer()
    with pytest.raises(UsageError, match="must be PARTY=HOST:PORT; a PARTY is analyzer"):
        connections_of(profile, ["127.0.0.1:7001"])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("analyser = 'x'", "unknown key: analyser; did you mean analyzer"),
        ("analyzer = 7001", "analyzer must be text"),
        ("analyzer", "is not TOML"),
        ("a" * 20_000, "too long"),
    ],
)
def test_a_profile_with_a_mistake_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    """The message names the file."""
    profile = tmp_path / "profile.toml"
    profile.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match=rule) as caught:
        read_profile(profile)
    assert str(profile) in str(caught.value)
