"""Run as `python -m shuffledp.user_agent --settings user_agent.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.runtime.service import main
from shuffledp.user_agent.server import start
from shuffledp.user_agent.settings import UserAgentSettings

if __name__ == "__main__":
    main("user_agent", UserAgentSettings, start)
