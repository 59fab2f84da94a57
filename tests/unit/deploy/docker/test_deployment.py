"""The file of variables that compose reads."""

from deploy.docker.deployment import with_variables

_FILE = "# mine\nHTTP_PROXY=http://proxy:1/a=b\nSHUFFLEDP_TAG=old\n\nnot a line of ours = x\n"


def test_an_operators_lines_stay() -> None:
    """A variable is replaced, a new one is added; comments and other lines are left alone."""
    variables = {"SHUFFLEDP_TAG": "new", "SHUFFLEDP_CPUS": "2"}
    written = with_variables(_FILE, variables)

    kept = _FILE.replace("SHUFFLEDP_TAG=old\n", "")
    assert f"{kept}SHUFFLEDP_TAG=new\nSHUFFLEDP_CPUS=2\n" == written
    assert written == with_variables(written, variables)
