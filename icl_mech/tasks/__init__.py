"""Classification tasks: examples, a template, label words; built in, local or from the hub."""

from icl_mech.tasks.registry import KnownTask, known_tasks, load_task
from icl_mech.tasks.types import Example, Task, Template

__all__ = ["Example", "KnownTask", "Task", "Template", "known_tasks", "load_task"]
