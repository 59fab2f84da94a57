"""Run as `python -m shuffledp.analyzer --settings analyzer.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy

if __name__ == "__main__":  # workers, which load this file too, need none of these
    from shuffledp.analyzer.server import start
    from shuffledp.analyzer.settings import AnalyzerSettings
    from shuffledp.common.runtime.service import main

    main("analyzer", AnalyzerSettings, start)
