"""Run as `python -m shuffledp.shuffler --settings shuffler.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.runtime.service import main
from shuffledp.shuffler.server import start
from shuffledp.shuffler.settings import ShufflerSettings

if __name__ == "__main__":
    main("shuffler", ShufflerSettings, start)
