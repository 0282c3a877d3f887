"""Trainer ranks and samplers in processes of their own, behind the protocols of those that live here."""
