"""The files that compose reads."""

import re
from pathlib import Path

import pytest

from shuffledp.deploy.docker.deployment import VARIANTS, Deployment, Engine, with_variables

_FILE = "# mine\nHTTP_PROXY=http://proxy:1/a=b\nSHUFFLEDP_TAG=old\n\nnot a line of ours = x\n"


def test_an_operators_lines_stay() -> None:
    """A variable is replaced, a new one is added; comments and other lines are left alone."""
    variables = {"SHUFFLEDP_TAG": "new", "SHUFFLEDP_CPUS": "2"}
    written = with_variables(_FILE, variables)

    kept = _FILE.replace("SHUFFLEDP_TAG=old\n", "")
    assert f"{kept}SHUFFLEDP_TAG=new\nSHUFFLEDP_CPUS=2\n" == written
    assert written == with_variables(written, variables)


@pytest.mark.parametrize("variant", VARIANTS)
def test_compose_merges_the_files_of_a_deployment(tmp_path: Path, variant: str) -> None:
    """In their order: later ones add to earlier ones."""
    engine = Engine(compose=("echo",))
    deployment = Deployment(engine=engine, variant=variant, variables_file=tmp_path / ".env")
    said = deployment.compose("ps").stdout

    found = [Path(each) for each in re.findall(r"--file=(\S+)", said)]
    assert VARIANTS[variant][0] == [file.name for file in found]
    assert all(file.is_file() for file in found)
