"""What each party observes in one recorded run of the three real services."""
