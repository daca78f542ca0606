"""A checkout that is on Python's path without being installed: it works, and says so."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.version import Version

import icl_mech as icl
from icl_mech import names
from icl_mech.errors import IclMechError, ModelError
from icl_mech.measurements import provenance
from tests import release
from tests.said import Words
from tests.tiny import tiny_hf, tiny_tokenizer

WORDS = Words(__file__)
ROOT = Path(__file__).parents[1]

MEASURED = """
import icl_mech as icl
model, task = icl.planted_model(), icl.planted_task()
icl.predict(model, icl.build_prompts(task, model, shots=1, n=4)).save("kept")
print(icl.load("kept").provenance["versions"]["icl-mech"])
"""


@pytest.fixture
def without(monkeypatch):
    """Hide the metadata of a package."""
    installed = metadata.version

    def hide(package):
        def version(name):
            if name == package:
                raise metadata.PackageNotFoundError(name)
            return installed(name)

        monkeypatch.setattr(metadata, "version", version)
        provenance._version.cache_clear()

    yield hide
    provenance._version.cache_clear()


def test_the_version_is_that_of_the_checkout_and_marked(without):
    without("icl-mech")
    assert icl.__version__ == f"{release.version()}{names.NOT_INSTALLED}"
    assert names.versions().startswith(f"icl-mech {icl.__version__} (torch {torch.__version__}")
    assert Version(icl.__version__).public == release.version()


@pytest.mark.parametrize("project", ["", '[project]\nname = "other"\nversion = "7.0"\n'])
def test_files_that_were_copied_into_another_project_have_no_number(
    project, without, tmp_path, monkeypatch
):
    without("icl-mech")
    if project:
        (tmp_path / "pyproject.toml").write_text(project)
    monkeypatch.setattr(names, "__file__", str(tmp_path / "icl_mech" / "names.py"))
    assert icl.__version__ == f"0{names.NOT_INSTALLED}"


def test_a_model_is_loaded_and_results_record_it(without):
    without("icl-mech")
    model = icl.load_model(tiny_hf("gpt2"), tokenizer=tiny_tokenizer("bpe"))
    prompts = icl.texts(["The film was good. Nobody saw it. A second one came."], model)
    result = icl.span_flow(model, prompts, progress=False)
    assert result.provenance["versions"]["icl-mech"] == icl.__version__


def test_a_library_without_metadata_is_named_and_no_model_is_blamed(without):
    without("transformer-lens")
    with WORDS.raises(IclMechError, "library_without_metadata", "transformer-lens") as refused:
        icl.load_model(tiny_hf("gpt2"), tokenizer=tiny_tokenizer("bpe"))
    assert not isinstance(refused.value, ModelError)


@pytest.mark.slow
def test_a_process_that_sees_no_installed_package(tmp_path):
    """The libraries of this environment, but neither its path files nor this package's metadata."""
    libraries, checkout = tmp_path / "libraries", tmp_path / "checkout"
    for folder in (libraries, checkout):
        folder.mkdir()
    for path in Path(torch.__file__).parents[1].iterdir():
        if path.suffix != ".pth" and not path.name.startswith("icl_mech"):
            (libraries / path.name).symlink_to(path)
    for name in ("icl_mech", "pyproject.toml"):
        (checkout / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (checkout, libraries)))},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = f"{release.version()}{names.NOT_INSTALLED}\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
