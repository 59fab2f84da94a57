"""The file of variables that compose reads."""

from deploy.docker.deployment import variables_of, with_variables

_FILE = "# mine\nHTTP_PROXY=http://proxy:1/a=b\nSHUFFLEDP_TAG=old\n\nnot a line of ours = x\n"


def test_variables_are_read_and_all_else_is_comment() -> None:
    """A value may hold any sign of equality."""
    assert {"HTTP_PROXY": "http://proxy:1/a=b", "SHUFFLEDP_TAG": "old"} == variables_of(_FILE)


def test_what_an_operator_wrote_stays() -> None:
    """A variable is replaced, a new one is added; comments and other lines are left alone."""
    written = with_variables(_FILE, {"SHUFFLEDP_TAG": "new", "SHUFFLEDP_CPUS": "2"})

    assert _FILE.replace("SHUFFLEDP_TAG=old\n", "") == written.partition("SHUFFLEDP")[0]
    assert variables_of(_FILE) | {"SHUFFLEDP_TAG": "new", "SHUFFLEDP_CPUS": "2"} == variables_of(
        written
    )
    assert written == with_variables(written, {"SHUFFLEDP_TAG": "new", "SHUFFLEDP_CPUS": "2"})
