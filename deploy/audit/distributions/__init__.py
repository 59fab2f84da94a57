"""Distributions written from the papers, apart from the code that is judged by them."""
