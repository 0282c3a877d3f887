"""Training engines: they own the policy, its optimizer and the loop over micro-batches."""
