"""The order of events: the step, the schedules that order its halves, and the wiring of a whole run."""
