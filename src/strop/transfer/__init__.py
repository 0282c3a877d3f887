"""How weights travel from the trainer to the samplers, and the books that are kept of it."""

from strop.transfer.accounting import SendingAccount, discrepancies
from strop.transfer.broadcast import BroadcastReceiver, BroadcastSender
from strop.transfer.buckets import buckets, chunk_bytes
from strop.transfer.channel import Channel, LocalChannel
from strop.transfer.checksum import checksums_agree, weight_checksum
from strop.transfer.disk import DiskReceiver, DiskSender
from strop.transfer.errors import DeliveryError, TransferBrokenError
from strop.transfer.in_process import InProcessTransfer
from strop.transfer.sending import DrainingHalf
from strop.transfer.shared_memory import SharedMemoryReceiver, SharedMemorySender
from strop.transfer.split import Address, ReceivingHalf, SendingHalf, SplitTransfer

__all__ = [
    "Address",
    "BroadcastReceiver",
    "BroadcastSender",
    "Channel",
    "DeliveryError",
    "DiskReceiver",
    "DiskSender",
    "DrainingHalf",
    "InProcessTransfer",
    "LocalChannel",
    "ReceivingHalf",
    "SendingAccount",
    "SendingHalf",
    "SharedMemoryReceiver",
    "SharedMemorySender",
    "SplitTransfer",
    "TransferBrokenError",
    "buckets",
    "checksums_agree",
    "chunk_bytes",
    "discrepancies",
    "weight_checksum",
]
