"""The lab machine: a real systemd host in a systemd-nspawn guest, for newcomers and tests.

>>> with lab.Machine("try") as machine:
...     machine.exec("systemctl is-system-running").stdout
"""

from lab.cleanup import prune
from lab.errors import BootError, ExecError, HostError, ImageError, LabError
from lab.image import Image, images
from lab.machine import Machine
from lab.record import Bind
from lab.stock import ensure_image, unique_name

__all__ = [
    "Bind",
    "BootError",
    "ExecError",
    "HostError",
    "Image",
    "ImageError",
    "LabError",
    "Machine",
    "ensure_image",
    "images",
    "prune",
    "unique_name",
]
