"""Teachers: frozen models that score what the policy sampled."""
