"""Data sets on the Hugging Face hub."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech.errors import TaskError
from icl_mech.tasks.known import CONVERTED, HubSource
from icl_mech.tasks.rows import Part


def hub_part(hub: HubSource, split: str, *, task: str, offline: Sequence[str]) -> Part:
    """The rows of one split of a known task; `offline` names tasks a message may offer instead.

    Raises:
        TaskError: if the data set cannot be loaded.
    """
    # A converted branch holds no list of configurations, but a folder for each.
    config = {"data_dir" if hub.revision == CONVERTED else "name": hub.config}
    rows = _load(
        hub.path,
        f"Task {task!r} needs the data set {hub.path!r} from the Hugging Face hub, which",
        f"Go online, give a local file (load_task('my.csv', template={task!r})), or use an "
        f"offline task: {', '.join(offline)}.",
        split=split,
        revision=hub.revision,
        **(config if hub.config else {}),
    )

    def used(row: Mapping[str, Any]) -> bool:
        return row.get(hub.label) not in hub.left_out

    return Part(f"{hub.path} {split}", list(filter(used, rows)))


def hub_splits(path: str, config: str | None, revision: str | None) -> Mapping[str, Any]:
    """All splits of any data set of the hub, by name.

    Raises:
        TaskError: if the data set cannot be loaded.
    """
    found: Mapping[str, Any] = _load(
        path,
        f"{path!r} is no file or folder here; as a data set of the Hugging Face hub it",
        "Check the name (owner/name), name one of its configurations with config=, go online, or "
        "load the data yourself and give the frame.",
        **({"name": config} if config else {}),
        **({"revision": revision} if revision else {}),
    )
    return found


def _load(path: str, what: str, remedy: str, **options: Any) -> Any:
    import datasets

    try:
        return datasets.load_dataset(path, **options)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        why = " ".join(str(error).split())[:300]
        raise TaskError(
            f"{what} could not be loaded ({type(error).__name__}). {why} {remedy}"
        ) from error
