"""What the machine has to spare."""

import os
import shutil
from pathlib import Path


def free_ram(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Give the bytes of memory that can be had without swapping."""
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        if "MemAvailable" in lines:
            return 1024 * int(lines["MemAvailable"].split()[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # macOS tells only what is built in


def free_disk(folder: Path) -> int:
    """Give the bytes that fit into a folder, which need not exist yet."""
    return shutil.disk_usage(existing(folder)).free


def existing(folder: Path) -> Path:
    """Give the folder, or the nearest one above it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())


def in_units(num_bytes: float) -> str:
    """Write a number of bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"
