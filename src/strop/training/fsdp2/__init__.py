"""The training engine on PyTorch FSDP2: one process or many."""
