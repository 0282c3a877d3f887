"""Every test runs on one thread: two threads under contention are slower than one, and sums stay reproducible.

Ctrl-C works in every test: a shell that starts the tests in the background (`make test &`) has it ignored, for this
process and its children.
"""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)
