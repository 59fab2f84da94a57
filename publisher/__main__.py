"""Run as `python -m shuffledp.publisher --settings publisher.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.runtime.service import main
from shuffledp.publisher.server import start
from shuffledp.publisher.settings import PublisherSettings

if __name__ == "__main__":
    main("publisher", PublisherSettings, start)
