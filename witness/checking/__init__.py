"""A checking witness: cosigns the log only while every claim in it is true."""
