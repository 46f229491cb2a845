"""`python -m sglang.launch_server --config config.yaml`, as the unit of the real engine starts it.

Light on purpose: the spawned children import this module again.
"""

import os
import sys
import warnings


def run() -> int:
    """Parse, then run; 2 for a bad flag or a bad script, before anything is started."""
    from .faults import FaultError, FaultSource  # noqa: PLC0415  after the warning, as the real one
    from .flags import parse  # noqa: PLC0415  after the warning, as the real one

    args = parse(sys.argv[1:])
    try:
        faults = FaultSource(os.environ)
    except FaultError as error:
        print(f"engine double: {error}", file=sys.stderr)  # noqa: T201  argparse's way
        return 2
    from .lifecycle import main  # noqa: PLC0415  after the warning, as the real one

    return main(args, faults)


if __name__ == "__main__":
    warnings.warn(
        "'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.",
        UserWarning,
        stacklevel=1,
    )
    sys.exit(run())
