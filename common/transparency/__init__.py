"""An append-only log of tasks and keys, its witnesses, and the device's view of it."""
