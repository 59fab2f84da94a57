"""Finding a container engine, and errors that name what is missing."""

from pathlib import Path

import pytest

from shuffledp.deploy.docker.deployment import Engine, EngineError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def _install(folder: Path, name: str, does: str) -> None:
    """Install a shell script that branches on its first argument."""
    program = folder / name
    program.write_text(f"#!/bin/sh\ncase $1 in\n{does}\nesac\n", encoding="ascii")
    program.chmod(0o755)


_ALL = "*) exit 0;;"
_NO_PLUGIN = "compose) exit 1;;\n*) exit 0;;"


@pytest.mark.parametrize(
    ("does", "compose"), [(_ALL, ("docker", "compose")), (_NO_PLUGIN, ("docker-compose",))]
)
def test_the_newest_program_for_compose_files_is_taken(
    programs: Path, does: str, compose: tuple[str, ...]
) -> None:
    """That is docker's own, if it has one."""
    _install(programs, "docker", does)
    _install(programs, "docker-compose", _ALL)

    assert Engine(compose=compose) == Engine.find()


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({}, r"docker is not installed.*apt-get install .*docker\.io docker-compose"),
        ({"docker": "compose) exit 0;;\n*) exit 1;;"}, "docker does not answer"),
        ({"docker": _NO_PLUGIN}, "docker-compose is not installed.*apt-get install"),
    ],
)
def test_what_is_missing_is_said(programs: Path, there: dict[str, str], message: str) -> None:
    """The message has the command that installs it."""
    for name, does in there.items():
        _install(programs, name, does)

    with pytest.raises(EngineError, match=message):
        Engine.find()


def test_a_failure_shows_what_the_engine_said(programs: Path) -> None:
    """The message has the end of the output, and the command."""
    _install(programs, "docker", "build) echo no such target >&2; exit 1;;")
    engine = Engine(compose=("docker-compose",))

    with pytest.raises(EngineError, match=r"(?s)docker build x … failed:.*no such target"):
        engine.run("build", "x")
    assert engine.run("build", check=False).returncode == 1
