"""An append-only log of tasks, its witnesses, and the device's view of it."""
