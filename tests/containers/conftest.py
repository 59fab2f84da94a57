from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from shuffledp.common.errors import ShuffleDpError
from shuffledp.deploy.docker.deployment import Deployment
from tests.support.containers import Images, deployed, engine_of_this_machine


@pytest.fixture(scope="session")
def images() -> Iterator[Images]:
    """The built images; without an engine the run ends with the reason."""
    with ExitStack() as held:
        try:
            built = Images.built(held.enter_context(engine_of_this_machine()))
        except ShuffleDpError as error:
            pytest.exit(str(error), returncode=1)
        yield built


@pytest.fixture(scope="session")
def deployment(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The services, healthy."""
    with deployed(images, tmp_path_factory.mktemp("deployment")) as running:
        yield running
