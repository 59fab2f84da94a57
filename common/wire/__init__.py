"""Protocol buffers to values and back: nothing incoming is read anywhere else."""
