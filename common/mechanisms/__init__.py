"""Mechanisms, each with the randomizer of the device and the estimator of the analyzer."""
