"""Choose the caches of this GPU and driver, then become the engine: same process, same environment.

Usage: launch_engine.py CONFIG.yaml, with the engine venv's python. What was compiled at run time holds for one release, one kind of GPU
and one driver: `SGLANG_CACHE_DIR` (.../jit/RELEASE/device) is made a link to a directory beside it that is named by GPU and driver, as the
kernel module tells them. A driver that was updated is so never given what an older one compiled. A directory that is there already, as
when an operator set the variable, is left alone.
"""

import os
import re
import sys
from pathlib import Path

NVIDIA = Path("/proc/driver/nvidia")


def device(root: Path = NVIDIA) -> str:
    """The models of the GPUs and the version of the driver, fit for a directory's name; `cpu` without a driver."""
    if not (root / "version").is_file():
        return "cpu"
    version = re.search(r"\d+\.\d+[.\d]*", (root / "version").read_text())
    told = (file.read_text() for file in root.glob("gpus/*/information"))
    models = sorted({line.partition(":")[2].strip() for text in told for line in text.splitlines() if line.startswith("Model:")})
    return re.sub(r"[^\w.+-]+", "-", f"{'+'.join(models)}-{version[0] if version else 'unknown'}")


def choose(cache: Path, name: str) -> None:
    """Make `cache` a link to the directory `name` beside it, unless it is a directory itself. Atomic: two engines start at once."""
    if cache.exists() and not cache.is_symlink():
        return
    (cache.parent / name).mkdir(parents=True, exist_ok=True)
    fresh = cache.with_name(f".{cache.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(name)
    fresh.replace(cache)


def main(config: str) -> None:
    if "SGLANG_CACHE_DIR" in os.environ:
        choose(Path(os.environ["SGLANG_CACHE_DIR"]), device())
    os.execv(sys.executable, [sys.executable, "-m", "sglang.launch_server", "--config", config])


if __name__ == "__main__":
    main(sys.argv[1])
