"""May this generation be run? It must be on the machine as it was written, with its release. Asked before anything is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import ledger, node, store
from .generation import GENERATIONS
from .ledger import Entry
from .members import RELEASES
from .node import NoGenerationError

EDITED = """{files} of generation {generation} is not what was written there: it was changed by hand. Nothing was stopped.
    A generation is never edited: put the change into group_vars. What is on the machine is below {folder}; to give it up,
    rm {folder}/manifest.json
    there: a directory without one is not used, and site.yml writes a new one. rollback.yml goes to another generation."""
PRUNED = """generation {generation} needs release {release}, and {marker} is missing: it was pruned by hand, or never finished. Nothing was stopped.
    {others}, or build it again: check out {revision} of this project (it has the lock files) and run site.yml."""


def untouched(generation: str, root: Path = Path(GENERATIONS)) -> None:
    """Raise NoGenerationError naming the files when the generation is not what was written."""
    wrong = store.changed_by_hand(generation, node.manifest(generation, root), root)
    if wrong:
        raise NoGenerationError(EDITED.format(files=", ".join(wrong), generation=generation, folder=root / generation))


def startable(generation: str, entries: Sequence[Entry], root: Path = Path(GENERATIONS), releases: Path = Path(RELEASES)) -> None:
    """Raise NoGenerationError, saying what to do, when the generation or its release is not there whole."""
    told = node.manifest(generation, root)
    untouched(generation, root)
    if _is_built(told["release"], releases):
        return
    good = {str(e["generation"]): None for e in reversed(entries) if e.get("event") == "good" and ledger.is_good(entries, str(e["generation"]))}
    whole = [g for g in good if node.is_whole(g, root) and _is_built(node.manifest(g, root)["release"], releases)]
    others = f"Good, and with its release: {', '.join(whole[:5])} (-e generation=ID)" if whole else "No other good generation has its release either"
    revision = (told.get("origin") or {}).get("revision") or "the revision it was made from"
    marker = releases / told["release"] / "release.json"
    raise NoGenerationError(
        PRUNED.format(generation=generation, release=told["release"], marker=marker, others=others, revision=revision)
    )


def _is_built(release: str, releases: Path) -> bool:
    return (releases / release / "release.json").is_file()
