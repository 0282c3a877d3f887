"""How weights travel from the trainer to the samplers, and the books that are kept of it."""

from strop.transfer.accounting import SendingAccount, discrepancies
from strop.transfer.buckets import buckets, chunk_bytes
from strop.transfer.checksum import checksums_agree, weight_checksum
from strop.transfer.errors import DeliveryError, TransferBrokenError
from strop.transfer.in_process import InProcessTransfer

__all__ = [
    "DeliveryError",
    "InProcessTransfer",
    "SendingAccount",
    "TransferBrokenError",
    "buckets",
    "checksums_agree",
    "chunk_bytes",
    "discrepancies",
    "weight_checksum",
]
