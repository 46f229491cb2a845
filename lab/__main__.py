"""`python -m lab up|down|shell|status|prune`: the lab machine from the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab import cleanup, guest, host, image, paths, record
from lab.errors import LabError
from lab.machine import Machine
from lab.progress import Progress, best

DEFAULT = "pd-lab"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="make the machine, or start it; prints how to reach it")
    up.add_argument("name", nargs="?", default=DEFAULT)
    up.add_argument("--image", default="base", help="image a new machine starts from (default: base)")
    down = commands.add_parser("down", help="remove machines and whatever killed runs left behind")
    down.add_argument("name", nargs="?", help="this machine (default: all kept ones of this checkout)")
    down.add_argument("--all", action="store_true", help="all machines of all checkouts, in use or not")
    shell = commands.add_parser("shell", help="a shell in the machine, or one command")
    shell.add_argument("name", nargs="?", default=DEFAULT)
    shell.add_argument("run", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run this instead of a shell")
    commands.add_parser("status", help="machines and images")
    prune = commands.add_parser("prune", help="remove images that are out of date and unused")
    prune.add_argument("--all", action="store_true", help="also the current ones, if no machine stands on them")
    return parser.parse_args(argv)


def up(arguments: argparse.Namespace, console: Console, progress: Progress) -> int:
    """Make or start the machine."""
    machine = Machine(arguments.name, arguments.image, keep=True, progress=progress).boot()
    console.print(f"[bold]{machine.name}[/] runs at [bold]{machine.address}[/]", highlight=False)
    console.print(f"  ssh -F {machine.ssh_config} {machine.name}", highlight=False, soft_wrap=True)
    return 0


def down(arguments: argparse.Namespace, console: Console, progress: Progress) -> int:
    """Remove machines, orphans first."""
    gone = cleanup.reap(progress)
    for found in record.records():
        mine = found.checkout == paths.CHECKOUT
        chosen = mine and (found.name == arguments.name if arguments.name else found.owner is None)
        if arguments.all or chosen:
            with paths.locked(f"machine-{found.id}"):
                cleanup.dismantle(found)
            gone.append(found.name)
    console.print(f"removed: {', '.join(gone)}" if gone else "nothing to remove")
    left = [found.name for found in record.records()]
    if left:
        console.print(f"still there: {', '.join(left)} (of running processes or other checkouts)")
    return 0


def shell(arguments: argparse.Namespace, _console: Console, _progress: Progress) -> int:
    """Become ssh."""
    machine = Machine(arguments.name)
    command = [word for word in arguments.run if word != "--"]
    terminal = ["-t"] if not command and sys.stdin.isatty() else []
    os.execvp("ssh", ["ssh", *terminal, "-F", str(machine.ssh_config), machine.name, *command])


def status(_arguments: argparse.Namespace, console: Console, _progress: Progress) -> int:
    """Show machines and images."""
    table = Table("machine", "address", "image", "state", "owner", "checkout")
    for found in record.records():
        state = "running" if guest.supervisor(found) else "stopped"
        owner = "kept" if found.owner is None else f"pid {found.owner.pid}{' (gone)' if found.orphaned() else ''}"
        table.add_row(found.name, found.address, found.image, state, owner, found.repo)
    console.print(table)
    stock = Table("image", "digest", "layers", "made")
    for known in image.images():
        stock.add_row(known.name, known.digest, str(len(known.layers)), known.created)
    console.print(stock)
    return 0


def prune(arguments: argparse.Namespace, console: Console, _progress: Progress) -> int:
    """Remove old images."""
    removed = cleanup.prune(everything=arguments.all)
    console.print(f"removed: {', '.join(removed)}" if removed else "nothing to remove")
    return 0


COMMANDS = {"up": up, "down": down, "shell": shell, "status": status, "prune": prune}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a failure is one red block of text and exit status 1."""
    arguments = parse(argv)
    try:
        host.require_root()
        paths.prepare()
        return COMMANDS[arguments.command](arguments, Console(), best())
    except LabError as error:
        Console(stderr=True).print(f"[red]lab:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
