"""Every protocol on one data set, without the sealing: figures in seconds at a million users."""
