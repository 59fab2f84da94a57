"""Core dumps, which would write keys and values in memory to the disk."""

import resource


def forbid_core_dumps() -> None:
    """Let neither this process nor those that it starts dump core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
