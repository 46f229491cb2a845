"""Images: stacks of read-only overlay layers, each named by the digest of what it was made from.

`base` is the Debian of `recipe.py`; `site` holds what is inherited from the outer machine and lies on top of every
stack, so that no other image carries it; any other is a machine's own layer, kept by `Machine.freeze`. `image.json` is
written last: a directory without it is half made and never used.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import outer, overlay, paths, recipe
from lab.cgroup import Cgroup
from lab.errors import ImageError
from lab.host import run
from lab.progress import Progress

GUEST_UV_CACHE = "/var/cache/uv"


@dataclass(frozen=True)
class Image:
    """A complete image; `layers` top first, `site` not among them."""

    name: str
    digest: str
    layers: tuple[Path, ...]
    created: str

    @property
    def path(self) -> Path:
        """Its directory."""
        return home(self.name, self.digest)


def home(name: str, digest: str) -> Path:
    """Where the image `name` with `digest` is, or would be."""
    return paths.IMAGES / f"{name}-{digest}"


def load(path: Path) -> Image | None:
    """The image in directory `path`; None where it is half made, absent, or a layer under it is gone."""
    data = paths.read_json(path / "image.json")
    if data is None:
        return None
    image = Image(data["name"], data["digest"], tuple(map(Path, data["layers"])), data["created"])
    return image if all(layer.is_dir() for layer in image.layers) else None


def images() -> list[Image]:
    """Every complete image, the newest last."""
    found = (load(path) for path in paths.IMAGES.iterdir() if not path.name.startswith("."))
    return sorted((image for image in found if image), key=lambda image: image.created)


def frozen_digest(key: str) -> str:
    """The digest of a frozen image made from the present base under the caller's `key`."""
    return recipe.digest(recipe.base_digest(), key)


def find(name: str, key: str | None = None) -> Image | None:
    """The frozen image `name` (with `key`, or the newest) that stands on the present base."""
    if key is not None:
        return load(home(name, frozen_digest(key)))
    base = home("base", recipe.base_digest()) / "layer"
    fitting = [image for image in images() if image.name == name and base in image.layers]
    return fitting[-1] if fitting else None


def commit(building: Path, name: str, digest: str, below: Iterable[Path]) -> Image:
    """Turn the directory `building` (with its `layer`) into an image, in one rename."""
    path = home(name, digest)
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    image = Image(name, digest, (path / "layer", *below), created)
    layers = [str(layer) for layer in image.layers]
    paths.write_json(building / "image.json", {"name": name, "digest": digest, "layers": layers, "created": created})
    if path.exists():
        shutil.rmtree(path)
    building.rename(path)
    return image


def ensure_base(progress: Progress) -> Image:
    """The base image, built if its recipe changed or it was never built."""
    digest = recipe.base_digest()
    if image := load(home("base", digest)):
        return image
    with _building("base", progress):
        if image := load(home("base", digest)):
            return image
        building = fresh(f".new-base-{digest}")
        layer = building / "layer"
        mirrors, options = outer.read_apt()
        with progress.step(f"building the base image: Debian {recipe.SUITE} from {mirrors[0]}") as detail:
            command = recipe.bootstrap_command(str(layer), mirrors, options)
            _run_build(f"pdlab-build-{digest}", command, building / "build.log", detail)
            _customize(layer)
        return commit(building, "base", digest, ())


def ensure_site(base: Image, progress: Progress) -> Image:
    """The layer with the outer machine's mirrors, certificates, pip, uv and proxy settings, as they are now."""
    bundle = next(layer / "etc/ssl/certs/ca-certificates.crt" for layer in base.layers)
    files = site_files(bundle.read_text())
    digest = recipe.digest(base.digest, files)
    if image := load(home("site", digest)):
        return image
    with _building("site", progress):
        if image := load(home("site", digest)):
            return image
        building = fresh(f".new-site-{digest}")
        with progress.step("inheriting mirrors, certificates, pip and uv settings") as detail:
            root = overlay.mount(base.layers, building)
            try:
                write_files(root, files)
                command = ["chroot", str(root), "update-ca-certificates"]
                _run_build(f"pdlab-build-{digest}", command, building / "build.log", detail)
            finally:
                overlay.unmount(root)
            (building / "upper").rename(building / "layer")
        return commit(building, "site", digest, ())


@contextlib.contextmanager
def _building(name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock for building the image `name`; says so when somebody else builds it already."""
    with paths.locked(f"image-{name}", wait=False) as mine:
        if mine:
            yield
            return
    progress.note(f"another process is building the image {name}; waiting for it")
    with paths.locked(f"image-{name}"):
        yield


def site_files(guest_bundle: str) -> dict[str, str]:
    """Path in the guest -> content, for all that is inherited."""
    mirrors, apt_options = outer.read_apt()
    files = {
        "etc/apt/sources.list": recipe.sources_list(mirrors),
        "etc/apt/apt.conf.d/90lab-outer": "\n".join([*apt_options, ""]),
        "etc/pip.conf": outer.pip_conf(outer.read_pip()),
        "etc/uv/uv.toml": outer.read_uv(GUEST_UV_CACHE),
    }
    for number, pem in enumerate(outer.extra_certificates(outer.read_certificates(), guest_bundle)):
        files[f"usr/local/share/ca-certificates/outer-{number:03}.crt"] = pem
    if proxies := outer.read_proxies():
        files["etc/environment"] = "".join(f"{name}={value}\n" for name, value in proxies.items())
        assigned = " ".join(f'"{name}={value}"' for name, value in proxies.items())
        files["etc/systemd/system.conf.d/lab-proxy.conf"] = f"[Manager]\nDefaultEnvironment={assigned}\n"
    return files


def write_files(root: Path, files: Mapping[str, str], mode: int = 0o644) -> None:
    """Write `files` (relative path -> content) under `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)


def _customize(layer: Path) -> None:
    write_files(layer, recipe.FILES)
    for unit in recipe.MASKED:
        path = layer / "etc/systemd/system" / unit
        path.unlink(missing_ok=True)
        path.symlink_to("/dev/null")
    run(["systemctl", f"--root={layer}", "enable", *recipe.ENABLED])
    for leftover in (*(layer / "etc/ssh").glob("ssh_host_*"), *(layer / "etc/apt/apt.conf.d").glob("99mmdebstrap")):
        leftover.unlink()
    for stamp in (layer / "etc/.updated", layer / "var/.updated"):
        stamp.touch()  # newer than /usr: the *-update services need not run at boot


def fresh(name: str) -> Path:
    """An empty directory to build the image `.new-NAME-DIGEST` in; the caller holds its lock."""
    path = paths.IMAGES / name
    discard(path)
    path.mkdir()
    return path


def discard(path: Path) -> None:
    """Remove an image directory, half made or not, with the processes that may still build it."""
    if path.name.startswith(".new-"):
        group = Cgroup.of(f"pdlab-build-{path.name.rpartition('-')[2]}")
        group.kill()
        group.remove()
    if path.exists():
        overlay.unmount(path / "root")
        shutil.rmtree(path)


def _run_build(group_name: str, command: list[str], log: Path, detail: Callable[[str], None]) -> None:
    """Run a build step in a cgroup of its own, showing its lines. Raises ImageError with the last ones if it fails."""
    group = Cgroup.of(group_name)
    try:
        with (
            log.open("w") as copy,
            group.spawn(command, stdout=subprocess.PIPE, errors="replace") as process,
        ):
            try:
                for line in process.stdout or ():
                    copy.write(line)
                    detail(line.strip()[:100])
            except BaseException:
                group.kill()
                raise
    finally:
        group.kill()
        group.remove()
    if process.returncode != 0:
        tail = "".join(log.read_text().splitlines(keepends=True)[-15:])
        raise ImageError(f"`{command[0]}` ended with exit status {process.returncode}; the end of {log}:\n{tail}")
