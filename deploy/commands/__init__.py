"""What can be typed: one file for each subject, a command for each verb."""
