"""Saved files changed on purpose."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch

from icl_mech.results.files import digest, sealed


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def litter(folder: Path) -> list[str]:
    """What is hidden below a folder or beside it."""
    return [str(p) for p in (*folder.parent.glob(".*"), *folder.rglob(".*"))]


def reseal(file: Path, **changes: Any) -> None:
    """Change a JSON document and give it the checksum it then has."""
    document = json.loads(file.read_text()) | changes
    file.write_bytes(sealed({k: v for k, v in document.items() if k != "sha256"}))


def as_earlier(folder: Path) -> Path:
    """Make everything saved in a folder what it was in the layout without checksums."""
    for file in folder.rglob("prompts.json"):
        file.unlink()
    for file in folder.rglob("*.json"):
        document = {**json.loads(file.read_text()), "format": 1}
        file.write_text(
            json.dumps(
                {
                    k: v
                    for k, v in document.items()
                    if k not in ("files", "sha256", "prompts", "made")
                },
                indent=1,
            )
        )
    return folder


def with_tensors(folder: Path, change: Any) -> None:
    """Change the tensors of a saved result, its checksums too."""
    file = folder / "tensors.safetensors"
    tensors = safetensors.torch.load(file.read_bytes())
    change(tensors)
    file.write_bytes(safetensors.torch.save(tensors))
    if json.loads((folder / "result.json").read_text())["format"] > 1:
        reseal(folder / "result.json", files={file.name: digest(file.read_bytes())})


def without_date(result: Any) -> dict[str, Any]:
    """Where a result comes from, apart from when it was measured."""
    return {key: value for key, value in result.provenance.items() if key != "date"}
