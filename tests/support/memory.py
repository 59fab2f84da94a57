"""How much memory this process has taken."""

from pathlib import Path


def peak_bytes() -> int:
    """
    Give the most that was resident since the program was started.

    Not getrusage's figure: a child that was started by a large parent inherits its parent's.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("the system does not tell a process's peak memory")
