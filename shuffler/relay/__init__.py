"""The second shuffler of a task: opens a layer of every report, adds its own noise, permutes."""
