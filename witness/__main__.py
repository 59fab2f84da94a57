"""Run as `python -m shuffledp.witness --settings witness.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.runtime.service import main
from shuffledp.witness.server import start
from shuffledp.witness.settings import WitnessSettings

if __name__ == "__main__":
    main("witness", WitnessSettings, start)
