"""Run as `python -m shuffler --settings shuffler.toml`."""

import common.runtime.blas_threads  # noqa: F401  # before numpy
from common.runtime.service import main
from shuffler.server import start
from shuffler.settings import ShufflerSettings

if __name__ == "__main__":
    main("shuffler", ShufflerSettings, start)
