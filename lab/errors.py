"""What the lab raises: every failure says what was asked, what came back, and what to do."""

from __future__ import annotations

import subprocess


class LabError(Exception):
    """The lab could not do what was asked; the text is meant for the user as it is."""


class HostError(LabError):
    """The outer machine lacks something, or a command on it failed."""


class ImageError(LabError):
    """An image cannot be built or is not there."""


class BootError(LabError):
    """A guest did not come up; carries the end of its console and journal."""


class ExecError(LabError):
    """A command in the guest ended with a non-zero exit status (`check=True`)."""

    def __init__(self, machine: str, command: str, result: subprocess.CompletedProcess[str]) -> None:
        self.result = result
        output = "\n".join(text.rstrip()[-4000:] for text in (result.stdout, result.stderr) if text.strip())
        super().__init__(f"{machine}: `{command}` ended with exit status {result.returncode}\n{output}".rstrip())
