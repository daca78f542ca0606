"""`icl-mech explore`: change a prompt or a layer by hand, in the browser."""

import json
import secrets
from os.path import exists
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icl_mech.cli.console import say, waiting
from icl_mech.cli.inputs import (
    built_texts,
    check_model,
    check_names,
    loaded_lens,
    loaded_model,
    loaded_task,
)
from icl_mech.cli.options import ModelOptions, TaskOptions, TextOptions, grouped
from icl_mech.tasks import Task

if TYPE_CHECKING:
    import icl_mech as icl
    from icl_mech.explorer import Explorer, Server

ADDRESS = "address.json"
"""File in the folder with port and token, so that an open page finds the server again."""


@grouped
def explore(
    model: ModelOptions,
    task: TaskOptions,
    texts: TextOptions,
    shots: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Demonstrations per class (default 1); with free-form answers, in total "
            "(default 4).",
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Number of queries.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the texts.")] = 0,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port; default: the one saved in the folder, or a free one; 0: a free one.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Number of torch threads (default: the fastest number)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps history and address: the same command continues from "
            "there, and an open page reconnects."
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Shared state to open: a file, a saved page, or a line of text."),
    ] = None,
    lens: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Fitted lens to read layers through: a saved or published one; default: the logit lens.",
        ),
    ] = None,
    save_page: Annotated[
        Path | None,
        typer.Option(
            help="Write the state, the start and the kept states (of --out) as one HTML page that "
            "needs no model, and stop."
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
) -> None:
    """Change a prompt or a layer by hand, and see the effect immediately."""
    check_names(model, task if texts.texts is None else None)
    check_model(model)
    chosen = loaded_task(task) if texts.texts is None else None
    loaded = loaded_model(model, quiet=False)
    prompts = built_texts(loaded, texts) if chosen is None else chosen
    with waiting("Opening the explorer ...", quiet=False):
        view = _opened(
            loaded,
            prompts,
            out,
            state=state,
            shots=shots,
            n=n,
            seed=seed,
            threads=threads,
            lens=None if lens is None else loaded_lens(lens, loaded),
        )
    if save_page is not None:
        with waiting("Measuring what the page shows ...", quiet=False):
            view.save_page(save_page)
        view.close()
        say(f"Saved: {save_page}")
        return
    server = _served(view, out, port)
    say(f"Explorer: {server.url}")
    say("It can be reached from this machine only. Stop it with Ctrl-C.")
    try:
        with TemporaryDirectory() as place:
            if not no_browser:
                typer.launch(_leading(Path(place), server.url))
            server.run()
    finally:
        view.close()


def _leading(place: Path, url: str) -> str:
    """Address of a file only this user can read that redirects to the page: anyone can read a command line."""
    file = place / "explore.html"
    file.touch(mode=0o600)
    file.write_text(f'<meta http-equiv="refresh" content="0; url={url}">', encoding="utf-8")
    return file.as_uri()


def _opened(
    loaded: object, prompts: "Task | icl.PromptBatch", out: Path | None, **how: Any
) -> "Explorer":
    """The explorer, restored from a folder if there is one."""
    from icl_mech.explorer import explore
    from icl_mech.explorer.view import HISTORY

    past = out if out is not None and exists(out / HISTORY) else None
    return explore(loaded, prompts, history=past, **how)


def _served(view: "Explorer", out: Path | None, port: int | None) -> "Server":
    """Its server, at the address saved in the folder."""
    from icl_mech.explorer import Server

    if out is None:
        return Server(view.session, port or 0)
    known = _address(out)
    taken = known.get("port", 0) if port is None else port
    server = Server(view.session, taken, known.get("token"))
    view.save(out)
    view.session.saved = lambda history: view.save(out)
    address = out / ADDRESS
    address.touch(mode=0o600)
    address.chmod(0o600)
    address.write_text(json.dumps({"port": server.port, "token": server.token}), encoding="utf-8")
    return server


def _address(out: Path) -> dict[str, Any]:
    """The saved port and token; empty if they cannot be read."""
    try:
        saved = json.loads((out / ADDRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    port, token = (
        (saved.get(key) for key in ("port", "token")) if isinstance(saved, dict) else (0, "")
    )
    fits = (
        isinstance(port, int)
        and isinstance(token, str)
        and len(token) >= len(secrets.token_urlsafe(24))
    )
    return {"port": port, "token": token} if fits else {}
