"""A lab machine: a real systemd host in a box, reached by real SSH."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from lab import cleanup, guest, host, image, network, outer, overlay, paths, record, ssh
from lab.errors import BootError, ExecError, ImageError, LabError
from lab.image import GUEST_UV_CACHE, Image
from lab.progress import Plain, Progress
from lab.record import Bind, Record

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


class Machine:
    """One machine of this checkout, by name. Making the object does nothing; `boot` makes or finds the machine.

    `image`: the name of an image, or an Image. `binds`: directories shared with the outer machine, besides uv's cache.
    `keep`: outlive this process; without it the next use of the lab takes the machine down once this process is gone.
    """

    def __init__(
        self,
        name: str,
        image: str | Image = "base",
        *,
        binds: Sequence[Bind] = (),
        keep: bool = False,
        progress: Progress | None = None,
    ) -> None:
        if not NAME.fullmatch(name):
            raise LabError(f"machine name {name!r}: write a lower-case letter, then at most 39 of a-z, 0-9 and -")
        self.name = name
        self.image = image
        self.progress = progress or Plain()
        self.timings: dict[str, float] = {}
        self._binds = (Bind(str(paths.UV_CACHE), GUEST_UV_CACHE), *binds)
        self._keep = keep

    @property
    def id(self) -> str:
        """Unique on this host."""
        return f"{self.name}-{paths.CHECKOUT}"

    @property
    def record(self) -> Record:
        """The written record. Raises LabError when there is no such machine."""
        found = record.load(self.id)
        if found is None:
            raise LabError(f"no lab machine {self.name!r} in {paths.REPO}; make it with `python -m lab up {self.name}`")
        return found

    @property
    def address(self) -> str:
        """Its IPv4 address; it stays the same over reboots."""
        return self.record.address

    @property
    def ssh_config(self) -> Path:
        """An ssh configuration with one Host: the machine's name (`ssh -F PATH NAME`)."""
        return ssh.config_path(self.record)

    def running(self) -> bool:
        """Whether the machine exists and its guest has processes."""
        found = record.load(self.id)
        return found is not None and guest.supervisor(found) is not None

    def boot(self) -> Machine:
        """Make the machine if there is none, start it if it does not run, and wait until its systemd is `running`.

        Raises HostError, ImageError or BootError with the reason; a machine made by this very call is then taken down.
        """
        host.require_root()
        paths.prepare()
        host.ensure_packages(self.progress)
        cleanup.reap(self.progress)
        with paths.locked(f"machine-{self.id}"):
            if self.running():
                self._adopt()
                return self
            made = record.load(self.id) is None
            try:
                self._start(strict=made)
            except BaseException:
                if made and (half := record.load(self.id)):
                    cleanup.dismantle(half)
                raise
        took = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in self.timings.items())
        self.progress.note(f"{self.name} is up at {self.address} ({took})")
        return self

    def exec(
        self, command: str | Sequence[str], *, check: bool = True, stdin: str = "", timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root over SSH: a list is quoted, a string is for the guest's shell.

        Raises ExecError when it ends with anything but 0 and `check` is set, LabError after `timeout` seconds. Status
        255 may also be ssh's own.
        """
        line = command if isinstance(command, str) else shlex.join(command)
        argv = ["ssh", "-F", str(self.ssh_config), self.name, "--", line]
        try:
            result = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{self.name}: `{line}` did not end within {timeout} s") from error
        if check and result.returncode != 0:
            raise ExecError(self.name, line, result)
        return result

    def journal(self, unit: str | None = None, since: str | None = None) -> str:
        """The guest's journal, of one unit or all, since a time that journalctl understands."""
        argv = ["journalctl", "--no-pager", "--quiet", "--output=short-precise"]
        argv += [f"--unit={unit}"] if unit else []
        argv += [f"--since={since}"] if since else []
        return self.exec(argv).stdout

    def boot_id(self) -> str:
        """Changes with every boot."""
        return self.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()

    def reboot(self) -> str:
        """`systemctl reboot` in the guest; returns what its systemd says once it has booted: running or degraded."""
        found = self.record
        pid = guest.supervisor(found)
        if pid is None:
            raise LabError(f"{self.name}: not running, so it cannot reboot; boot it")
        before = self.boot_id()
        with guest.notifications(found) as listener:
            self.exec(["systemctl", "reboot"], check=False)
            guest.wait_ready(found, listener, pid)
        if self.boot_id() == before:
            raise BootError(f"{self.name}: came back with the same boot id {before}, so it did not reboot")
        return self._booted_state(strict=False)

    def stop(self) -> None:
        """`systemctl poweroff`; the overlay stays, and `boot` starts the machine again."""
        found = self.record
        pid = guest.supervisor(found)
        if pid is not None:
            self.exec(["systemctl", "poweroff"], check=False)
            guest.wait_stopped(found, pid)
        found.cgroup.kill()
        found.cgroup.remove()
        overlay.unmount(found.home / "root")

    def freeze(self, name: str, key: str = "") -> Image:
        """Stop the machine and keep what it wrote as the image `name` (for the caller's digest `key`).

        The machine then stands on that image, with nothing of its own; `boot` starts it again.
        """
        if name in ("base", "site"):
            raise ImageError(f"image name {name!r} is the lab's own; take another")
        self.stop()
        found = self.record
        upper = found.home / "upper"
        for own in guest.MACHINE_OWN:
            path = upper / own
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with paths.locked("image-frozen"):
            building = image.fresh(f".new-frozen-{name}-{image.frozen_digest(key)}")
            upper.rename(building / "layer")
            frozen = image.commit(building, name, image.frozen_digest(key), map(Path, found.layers))
        replace(found, layers=tuple(map(str, frozen.layers)), image=name, fresh=True).save()
        return frozen

    def destroy(self) -> None:
        """Take the machine down and remove everything of it. Does nothing where there is none."""
        if record.load(self.id) is None:
            return
        with paths.locked(f"machine-{self.id}"):
            if found := record.load(self.id):
                cleanup.dismantle(found)

    def __enter__(self) -> Machine:
        return self.boot()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def _adopt(self) -> None:
        """Take over a machine that runs already: it must answer, and may be degraded (somebody's unit failed)."""
        found = self.record
        if self._keep and found.owner:
            replace(found, owner=None).save()
        self._booted_state(strict=False)

    def _resolve(self, base: Image) -> Image:
        if isinstance(self.image, Image):
            return self.image
        found = base if self.image == "base" else image.find(self.image)
        if found is None:
            have = ", ".join(f"{known.name} ({known.digest})" for known in image.images()) or "none"
            raise ImageError(f"no image {self.image!r} on the present base; freeze a machine as it. There are: {have}")
        return found

    def _start(self, *, strict: bool, clock: Callable[[], float] = time.monotonic) -> None:
        base = image.ensure_base(self.progress)
        site = image.ensure_site(base, self.progress)
        chosen = self._resolve(base)
        started = clock()
        with paths.locked("state"):
            net = network.ensure(self.progress.note)
            found = self._recorded(net, chosen, site)
        root = overlay.mount([Path(found.site), *map(Path, found.layers)], found.home)
        self._write_identity(found, net, root)
        mounted = clock()
        with guest.notifications(found) as listener:
            guest.wait_ready(found, listener, guest.start(found, root))
        ready = clock()
        self._booted_state(strict=strict)
        self.timings = {"overlay": mounted - started, "boot": ready - mounted, "ssh": clock() - ready}

    def _recorded(self, net: network.Network, chosen: Image, site: Image) -> Record:
        """The machine's record, made if it is new. The caller holds the lock `state`."""
        found = record.load(self.id)
        if found is None:
            taken = {other.slot for other in record.records()}
            found = Record(
                name=self.name,
                checkout=paths.CHECKOUT,
                repo=str(paths.REPO),
                slot=next(slot for slot in network.SLOTS if slot not in taken),
                group=f"pdlab-{self.id}",
                machine_id=uuid.uuid4().hex,
                layers=tuple(map(str, chosen.layers)),
                binds=self._binds,
                owner=None if self._keep else cleanup.owner_here(),
                image=chosen.name,
            )
        found = replace(found, address=str(net.subnet[found.slot]), site=str(site.path / "layer"))
        found.save()
        return found

    def _write_identity(self, found: Record, net: network.Network, root: Path) -> None:
        keys = ssh.prepare(found)
        image.write_files(root, guest.network_files(found, net, outer.read_resolv_conf()))
        if found.fresh:
            image.write_files(root, guest.identity_files(found, keys.public))
            image.write_files(root, {"etc/ssh/ssh_host_ed25519_key": keys.host_private}, 0o600)
            image.write_files(root, {"etc/ssh/ssh_host_ed25519_key.pub": keys.host_public})
            (root / "root/.ssh").chmod(0o700)
            replace(found, fresh=False).save()

    def _booted_state(self, *, strict: bool) -> str:
        """What `systemctl is-system-running` says over SSH once the boot is over.

        Raises BootError unless it is `running`, or `degraded` where that is allowed (not `strict`).
        """
        command = ["systemctl", "is-system-running", "--wait"]
        result = self.exec(command, check=False, timeout=guest.BOOT_SECONDS)
        state = result.stdout.strip()
        if state == "running" or (state == "degraded" and not strict):
            return state
        failed = self.exec(["systemctl", "--failed", "--no-legend", "--plain"], check=False).stdout.strip()
        raise BootError(
            f"{self.name}: booted, but `systemctl is-system-running` over SSH says {state or result.stderr.strip()!r} "
            f"instead of 'running'\n{failed}\n{guest.last_words(self.record)}"
        )
