"""What a task states: specs, dummies, composition rules, drafts."""
