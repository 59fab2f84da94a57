"""The auditor's command of `shuffledp`."""
