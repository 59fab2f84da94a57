"""Run as `python -m user_agent --settings user_agent.toml`."""

import common.runtime.blas_threads  # noqa: F401  # before numpy
from common.runtime.service import main
from user_agent.server import start
from user_agent.settings import UserAgentSettings

if __name__ == "__main__":
    main("user_agent", UserAgentSettings, start)
