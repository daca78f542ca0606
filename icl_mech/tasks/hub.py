"""Examples from data sets on the Hugging Face hub."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech.errors import TaskError
from icl_mech.tasks.files import to_examples
from icl_mech.tasks.known import CONVERTED, HubSource
from icl_mech.tasks.types import Example


def hub_examples(
    hub: HubSource, split: str, labels: Sequence[str], *, task: str, offline: Sequence[str]
) -> tuple[Example, ...]:
    """The examples of one split; `offline` names the tasks a message may offer instead.

    Raises:
        TaskError: if the data set cannot be loaded.
    """
    import datasets

    # A converted branch holds no list of configurations, but a folder for each.
    config = {"data_dir" if hub.revision == CONVERTED else "name": hub.config}
    try:
        rows = datasets.load_dataset(
            hub.path, split=split, revision=hub.revision, **(config if hub.config else {})
        )
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise TaskError(
            f"Task {task!r} needs the data set {hub.path!r} from the Hugging Face hub, which "
            f"could not be loaded ({type(error).__name__}). Go online, give a local file "
            f"(load_task('my.csv', template={task!r})), or use an offline task: "
            f"{', '.join(offline)}."
        ) from error

    def used(row: Mapping[str, Any]) -> bool:
        return row.get(hub.label) not in hub.left_out

    return to_examples(
        filter(used, rows), labels, origin=f"{hub.path} {split}",
        text_column=hub.text, label_column=hub.label, text2_column=hub.text2,
    )  # fmt: skip
