"""Offline training: a batch of given rows is one update; nothing is sampled, rewarded or published.

inputs.py    everything that may be refused, before any weights      build.py     the model and the run
passes.py    the pass over a batch                                   trainer.py   the loop
"""
