"""Writes `docs/recipes_table.md`: every table and figure of the papers with the recipe that reproduces it.

python docs/make_recipes.py
"""

from pathlib import Path

from icl_mech.recipes import recipes, shown_in_papers

PLACE = Path(__file__).parent / "recipes_table.md"


def table() -> str:
    """The table as Markdown."""
    lines = ["| paper | where | what | recipe |", "|---|---|---|---|"]
    known = recipes()
    for own in shown_in_papers():
        name = own.get("recipe")
        models = ", ".join(known[name].models) if name else ""
        has = any(number.published for number in known[name].numbers) if name else False
        numbers = f"numbers of {models}" if has else "no numbers to compare with"
        status = f"`{name}`: {numbers}" if name else f"none: {own['why']}"
        lines.append(f"| *{own['paper']}* | {own['place']} | {own['what']} | {status} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PLACE.write_text(table(), encoding="utf-8")
    print(PLACE)
