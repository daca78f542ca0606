"""What the package says of itself, in one place each."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import icl_mech
from tests import release

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_one_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert PROJECT["version"] == cited == icl_mech.__version__ == version("icl-mech")


def test_the_newest_changes_are_those_of_this_version():
    assert release.version() == PROJECT["version"]


@pytest.mark.parametrize("file", ["pyproject.toml", "CHANGELOG.md", "CITATION.cff"])
def test_a_file_of_another_version_is_found(file, tmp_path, monkeypatch):
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff"):
        text = (ROOT / name).read_text()
        other = text.replace(PROJECT["version"], "9.9.9") if name == file else text
        (tmp_path / name).write_text(other)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=re.escape(f"{file} ") + r"\S*9\.9\.9"):
        release.version()


def test_documented_extras_exist():
    places = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    places += [*ROOT.glob("icl_mech/**/*.py"), *ROOT.glob(".github/**/*.yml")]
    named = {
        extra
        for place in places
        if "notebooks" not in place.parts
        for found in re.findall(
            r"pip install[^\n`]*?(?:icl-mech|\.|whl\)\"?)\[([a-z, ]+)\]", place.read_text()
        )
        for extra in found.split(",")
    }
    assert "dask" in named
    assert named <= set(EXTRAS)


def test_extras_of_a_feature_are_in_the_developers_environment():
    for extra in ("explore", "nnsight", "dask"):
        assert set(EXTRAS[extra]) <= set(EXTRAS["dev"])


@pytest.mark.parametrize("workflow", ["tests", "release"])
def test_workflows_try_the_pythons_that_are_named(workflow):
    jobs = yaml.safe_load((ROOT / f".github/workflows/{workflow}.yml").read_text())["jobs"]
    (tried,) = [job["strategy"]["matrix"]["python"] for job in jobs.values() if "strategy" in job]
    named = [own.split(" :: ")[-1] for own in PROJECT["classifiers"] if " :: 3." in own]
    assert tried == named
    assert PROJECT["requires-python"] == f">={named[0]}"
