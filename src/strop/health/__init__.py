"""Whether a machine can run strop: versions, the machine, the disk, processes that talk, the sandbox, models, devices.

examine.py    asks every question
finding.py    what an answer is
the others    one part of the machine each
"""

from strop.health.examine import examine
from strop.health.finding import Finding, Health

__all__ = ["Finding", "Health", "examine"]
