"""`icl-mech models`: the models known by name."""

from dataclasses import asdict

from rich.table import Column, Table

from icl_mech.cli.console import draw, say_json
from icl_mech.cli.options import AsJson
from icl_mech.models import known_models


def models(json: AsJson = False) -> None:
    """List the models known by name."""
    if json:
        say_json([asdict(known) for known in known_models()])
        return
    table = Table("name", "parameters", Column("from", overflow="fold"), "note", box=None)
    for known in known_models():
        table.add_row(known.name, known.parameters, known.hub_id, known.note)
    draw(table, "Any other hub id, local folder or .gguf file works too.")
