"""Conversion between protocol buffers and values. Messages are parsed nowhere else."""
