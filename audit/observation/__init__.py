"""Each party's view of one recorded run of the three services."""
