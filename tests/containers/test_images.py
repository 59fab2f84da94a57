"""Sizes and contents of images, and reproducible builds."""

import pytest

from shuffledp.deploy.docker.deployment import IMAGES
from tests.support.containers import TAG, Images


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_small(images: Images, image: str) -> None:
    """An image takes less than 350 MB on disk, with its base."""
    size = ("image", "inspect", "--format", "{{.Size}}", f"shuffledp-{image}:{TAG}")

    assert int(images.engine.output(*size)) < 350_000_000


@pytest.mark.parametrize(
    ("image", "missing"),
    [
        ("shuffler", ["analyzer", "user_agent", "deploy", "lab", "scipy", "typer"]),
        ("analyzer", ["shuffler", "user_agent", "deploy", "lab", "typer"]),
        ("issuer", ["shuffler", "analyzer", "user_agent", "deploy", "scipy", "typer"]),
        ("user_agent", ["shuffler", "analyzer", "deploy", "typer"]),
        ("witness", ["shuffler", "analyzer", "user_agent", "deploy", "scipy", "typer"]),
        ("checking-witness", ["shuffler", "analyzer", "user_agent", "deploy", "typer"]),
        ("publisher", ["shuffler", "analyzer", "issuer", "protos", "deploy", "scipy", "typer"]),
        ("operator", ["audit", "matplotlib"]),
        ("auditor", ["matplotlib"]),
    ],
)
def test_an_image_holds_only_what_it_needs(images: Images, image: str, missing: list[str]) -> None:
    """No other party, statistics at the shuffler, command line at a service, or installer."""
    found = images.python(
        image,
        "import importlib.util, json, os\n"
        f"names = {[*missing, 'tests', 'pytest', 'pip']}\n"
        "importable = [name for name in names if importlib.util.find_spec(f'shuffledp.{name}')"
        " or importlib.util.find_spec(name)]\n"
        "folders = sorted(os.listdir('/app/shuffledp'))\n"
        "print(json.dumps({'importable': importable, 'folders': folders}))",
    )

    assert [] == found["importable"]
    own = ["__init__.py", "common", "protos", image.removeprefix("checking-")]
    own = (
        ["__init__.py", "common", "publisher", "user_agent"]
        if image == "publisher"
        else sorted(own)
    )
    assert image in {"operator", "auditor"} or own == found["folders"]


def test_the_same_lock_and_base_give_the_same_files(images: Images) -> None:
    """A rebuild without a cache gives all paths, modes and bytes that an image adds to its base."""
    again = f"shuffledp-shuffler:{TAG}-again"
    images.build("shuffler", again, "--no-cache")
    first, second = images.files(f"shuffledp-shuffler:{TAG}"), images.files(again)
    images.engine.run("image", "rm", again)

    assert len(first) > 1000
    assert [] == [
        path for path in first.keys() | second.keys() if first.get(path) != second.get(path)
    ]
