"""Run as `python -m publisher --settings publisher.toml`."""

import common.runtime.blas_threads  # noqa: F401  # before numpy
from common.runtime.service import main
from publisher.server import start
from publisher.settings import PublisherSettings

if __name__ == "__main__":
    main("publisher", PublisherSettings, start)
