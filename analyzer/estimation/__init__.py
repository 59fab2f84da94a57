"""Estimate frequencies, their errors and refined histograms from cell counts."""
