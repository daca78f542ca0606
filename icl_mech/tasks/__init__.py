"""Classification tasks: examples, a template, label words; built in, from local files or from the Hugging Face hub."""

from icl_mech.tasks.known import KnownTask, PromptFormat
from icl_mech.tasks.load import as_task, load_task
from icl_mech.tasks.registry import known_task, known_tasks
from icl_mech.tasks.types import Example, Task, Template

__all__ = [
    "Example",
    "KnownTask",
    "PromptFormat",
    "Task",
    "Template",
    "as_task",
    "known_task",
    "known_tasks",
    "load_task",
]
