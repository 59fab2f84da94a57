"""Run as `python -m shuffledp.shuffler --settings shuffler.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy

if __name__ == "__main__":  # workers, which load this file too, need none of these
    from shuffledp.common.runtime.service import main
    from shuffledp.shuffler.server import start
    from shuffledp.shuffler.settings import ShufflerSettings

    main("shuffler", ShufflerSettings, start)
