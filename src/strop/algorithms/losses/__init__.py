"""Policy losses: pure functions of log-probs and advantages, [N] tokens to [N] losses."""
