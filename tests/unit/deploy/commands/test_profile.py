from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.deploy.commands.profile import PROFILE_OPTIONS, profile_defaults, read_profile
from tests.support.command_line import shown
from tests.support.commands import COMMANDS


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
    shown("init", str(tmp_path), "--analyzer", "analyzer:7001", "--output", str(profile))

    assert {"analyzer", *files} == set(read_profile(profile))


def test_a_command_takes_its_defaults_from_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option wins over the environment, which wins over the file."""
    profile = tmp_path / "profile.toml"
    profile.write_text('analyzer = "127.0.0.1:1"\nanalyzer_token_file = "none.token"\n')
    command = ("--profile", str(profile), "task", "list")

    with pytest.raises(SettingsError, match=f"^{tmp_path}/none.token"):
        shown(*command)
    monkeypatch.setenv("SHUFFLEDP_PROFILE_ANALYZER_TOKEN_FILE", "other.token")
    with pytest.raises(SettingsError, match=r"^other.token"):
        shown(*command)
    with pytest.raises(SettingsError, match=r"^third.token"):
        shown(*command, "--token-file", "third.token")


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


def test_each_operator_has_a_token_of_their_own(tmp_path: Path) -> None:
    """Commands at the shuffler take the shuffler's; a load run takes no defaults at all."""
    profile = tmp_path / "profile.toml"
    profile.write_text('analyzer_token_file = "a"\nshuffler_token_file = "s"\nshuffler = "h:1"\n')

    defaults = profile_defaults(profile)

    assert str(tmp_path / "s") == defaults["live"]["shuffler_token_file"]
    assert str(tmp_path / "s") == defaults["task"].get("close")["shuffler_token_file"]
    assert str(tmp_path / "a") == defaults["task"].get("list")["analyzer_token_file"]
    assert str(tmp_path / "a") == defaults["sentinels"].get("plant")["analyzer_token_file"]
    assert "load" not in defaults


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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_with_options_of_the_profile_takes_them(tmp_path: Path, name: str) -> None:
    """Except `load`, which must not reach real services by accident, and `init` itself."""
    options = {option.name for option in COMMANDS[name].params if option.name in PROFILE_OPTIONS}
    profile = tmp_path / "profile.toml"
    profile.write_text('analyzer = "127.0.0.1:1"\n', encoding="utf-8")
    defaults = profile_defaults(profile)
    for word in name.split()[1:]:
        defaults = defaults.get(word, {})

    served = bool(options) and name not in {"shuffledp load", "shuffledp init"}
    assert served == (defaults == {"analyzer": "127.0.0.1:1"})
