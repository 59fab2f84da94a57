"""What is in an image, and what is not."""

from typing import Final

import pytest

from deploy.docker.engine import IMAGES
from tests.support.containers import TAG, Images

_PARTIES: Final = ("shuffler", "analyzer", "user_agent")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_small(images: Images, image: str) -> None:
    """Below 350 MB with its base, as it lies on the disk."""
    name = f"shuffledp-{image}:{TAG}"

    assert int(images.engine.say("image", "inspect", "--format", "{{.Size}}", name)) < 350_000_000


@pytest.mark.parametrize("party", _PARTIES)
def test_an_image_holds_its_party_and_no_other(images: Images, party: str) -> None:
    """protos, common and its own folder; nothing else of this project can be imported."""
    others = [other for other in (*_PARTIES, "deploy", "tests") if other != party]
    found = images.python(
        party,
        "import importlib.util, json, os\n"
        f"importable = [name for name in {others} if importlib.util.find_spec(name)]\n"
        "print(json.dumps({'importable': importable, 'folders': sorted(os.listdir('/app'))}))",
    )

    assert {"importable": [], "folders": sorted(["common", "protos", party])} == found


@pytest.mark.parametrize(
    ("image", "missing"),
    [
        ("shuffler", ["scipy", "dp_accounting", "typer", "pip"]),
        ("analyzer", ["typer", "pip"]),
        ("user_agent", ["typer", "pip"]),
        ("operator", ["pip", "pytest", "matplotlib"]),
    ],
)
def test_an_image_holds_no_package_that_it_does_not_need(
    images: Images, image: str, missing: list[str]
) -> None:
    """No statistics at the shuffler, no command line at a service, no installer anywhere."""
    program = (
        "import importlib.util, json\n"
        f"print(json.dumps([name for name in {missing} if importlib.util.find_spec(name)]))"
    )

    assert [] == images.python(image, program)


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_starts_as_nobody_in_particular(images: Images, image: str) -> None:
    """The image itself says so, whoever runs it; and names a health check if it serves."""
    form = "{{.Config.User}} {{if .Config.Healthcheck}}checked{{else}}unchecked{{end}}"
    user, checked = images.engine.say(
        "image", "inspect", "--format", form, f"shuffledp-{image}:{TAG}"
    ).split()

    assert "10001:10001" == user
    assert ("unchecked" if image == "operator" else "checked") == checked


def test_the_same_lock_and_base_give_the_same_files(images: Images) -> None:
    """Built anew without a cache: every path, mode and byte that the image adds to its base."""
    again = f"shuffledp-shuffler:{TAG}-again"
    images.build("shuffler", again, "--no-cache")
    first, second = images.files(f"shuffledp-shuffler:{TAG}"), images.files(again)
    images.engine.run("image", "rm", again)

    assert len(first) > 1000
    assert [] == [
        path for path in first.keys() | second.keys() if first.get(path) != second.get(path)
    ]
