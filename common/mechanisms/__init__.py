"""One randomizer a file, both halves: the device's and the analyzer's."""
