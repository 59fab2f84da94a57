"""Reference distributions from the papers, independent of the code under test."""
