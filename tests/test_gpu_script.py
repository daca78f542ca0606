"""The instrument that measures on a GPU, on a processor and a small model."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType

import icl_mech as icl
from tests.benchmarks import gpu
from tests.benchmarks.instrument import Number, Report, shown
from tests.benchmarks.profiling import Event, busy, counted, counts, events_of
from tests.said import Words
from tests.small import small_model

WORDS = Words(__file__)


def cells(row):
    return {number["name"]: number for number in row["numbers"]}


@pytest.fixture
def instrument(tmp_path, monkeypatch):
    """Run the script; give its table and its JSON file."""

    def run(*options):
        place = tmp_path / "tables" / "gpu.md"
        place.parent.mkdir(exist_ok=True)
        words = ["gpu", "--device", "cpu", "--small", "--out", str(place), *options]
        monkeypatch.setattr(sys, "argv", words)
        gpu.main()
        return place.read_text(), json.loads(place.with_suffix(".json").read_text())

    return run


@pytest.mark.slow
def test_a_part_that_is_asked_for_alone(instrument):
    table, document = instrument("--part", "memory", "--commit", "abc")
    assert document["finished"]
    assert document["about"]["commit"] == "abc"
    assert document["about"]["torch"] == torch.__version__
    assert document["about"]["icl-mech"] == icl.__version__
    [section] = document["sections"]
    assert (section["part"], section["size"], section["dtype"]) == ("memory", "small", "bfloat16")
    names = [row["name"] for row in section["rows"]]
    assert len(names) == 2
    for name in (f"## {section['title']}", *names):
        assert name in table
    for row in section["rows"]:
        assert cells(row)["time"]["value"] > 0
        assert cells(row)["time"]["unit"] == "ms"
        assert cells(row)["peak"]["value"] is None  # a processor has no such count
        assert row["seconds"] > 0


@pytest.mark.slow
def test_two_processors_are_equal_and_a_failing_method_says_why(instrument, monkeypatch):
    def fail(setting):
        raise ZeroDivisionError("nothing\nmore")

    monkeypatch.setattr(gpu, "FAMILIES", {"llama": gpu.FAMILIES["llama"], "gpt2": {}})
    monkeypatch.setattr(gpu, "CALLS", {**gpu.CALLS, "generate": ((), fail)})
    table, document = instrument("--part", "equality", "--methods", "predict", "generate")
    rows = {row["name"]: row for row in document["sections"][0]["rows"]}
    assert list(rows) == ["llama: predict", "llama: generate", "gpt2: predict", "gpt2: generate"]
    for family in ("llama", "gpt2"):
        for number in rows[f"{family}: predict"]["numbers"]:
            assert (number["value"], number["met"]) == (0, True)
        assert rows[f"{family}: generate"]["numbers"] == []
        assert rows[f"{family}: generate"]["note"].endswith("ZeroDivisionError: nothing")
    assert "| llama: predict | 0 | 0 |" in table


def test_parts_behind_the_total_are_named(instrument):
    _, document = instrument("--part", "equality", "ratios", "--total", "0")
    assert document["finished"]
    assert [section["part"] for section in document["sections"]] == ["equality", "ratios"]
    assert all(section["not_reached"] and not section["rows"] for section in document["sections"])


@pytest.mark.slow
def test_all_parts_are_tried_on_a_processor(instrument):
    table, document = instrument()
    assert "**differs**" not in table
    assert [section["part"] for section in document["sections"]] == list(gpu.PARTS)
    for section in document["sections"]:
        assert section["rows"]
        assert not section["not_reached"]
        assert all(row["numbers"] for row in section["rows"])
    profile = next(part for part in document["sections"] if part["part"] == "profile")
    for row in profile["rows"]:
        numbers = cells(row)
        assert numbers["first"]["value"] > 0
        assert numbers["passes"]["value"] > 0
        assert numbers["module calls"]["value"] > numbers["passes"]["value"]


def test_a_table_of_another_device_needs_a_place(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--small"])
    with pytest.raises(SystemExit):
        gpu.main()
    WORDS(capsys.readouterr().err, "another_device")


def test_models_are_loaded_once_for_all_parts_of_their_size():
    parts = ("equality", "profile", "formats", "ratios")
    assert list(gpu.order(parts, ("1 B", "7 B"))) == [
        ("equality", ""),
        ("profile", "1 B"),
        ("ratios", "1 B"),
        ("profile", "7 B"),
        ("ratios", "7 B"),
        ("formats", ""),
    ]


# --- rows, limits and files ---


@pytest.fixture
def ticking(tmp_path):
    """A report whose clock moves by hand; every row takes ten seconds."""
    now = [100.0]

    def row(name, *numbers):
        def step():
            now[0] += 10
            return numbers, ""

        return name, step

    def report(**limits):
        return Report(tmp_path / "t.md", "T", {"device": "d"}, clock=lambda: now[0], **limits)

    return report, row


def test_a_part_stops_at_its_limit_between_rows(ticking):
    make, row = ticking
    report = make(limit=15)
    for part in ("one", "two"):
        report.measure(part, part, lambda: ([row(name, Number("n", 1)) for name in "abcd"], ""))
    assert [[each.name for each in section.rows] for section in report.sections] == [["a", "b"]] * 2
    assert [section.not_reached for section in report.sections] == [["c", "d"]] * 2
    assert [each.seconds for each in report.sections[1].rows] == [30, 40]
    WORDS(report.path.read_text(), "not_reached", "c; d")


def test_the_total_ends_a_part_before_its_limit(ticking):
    make, row = ticking
    report = make(limit=100, total=25)
    report.measure("one", "one", lambda: ([row(name, Number("n", 1)) for name in "abcde"], ""))
    assert report.sections[0].not_reached == ["d", "e"]


def test_both_files_hold_every_row_as_soon_as_it_is_there(ticking):
    make, row = ticking
    report, seen = make(), []

    def look():
        seen.append(json.loads(report.path.with_suffix(".json").read_text()))
        assert "| first | 1 |" in report.path.read_text()
        return [Number("n", 2)], ""

    report.measure("p", "P", lambda: ([row("first", Number("n", 1)), ("second", look)], ""))
    report.finish()
    assert [each["name"] for each in seen[0]["sections"][0]["rows"]] == ["first"]
    assert not seen[0]["finished"]
    assert json.loads(report.path.with_suffix(".json").read_text())["finished"]
    assert not list(report.path.parent.glob(".*"))


def test_a_part_that_cannot_begin_leaves_the_next_one_alone(ticking):
    make, row = ticking
    report = make()

    def plan():
        raise MemoryError("too large")

    report.measure("one", "one", plan)
    report.measure("two", "two", lambda: ([row("a", Number("n", 1))], ""))
    assert report.sections[0].remark.endswith("MemoryError: too large")
    assert [len(section.rows) for section in report.sections] == [0, 1]


@pytest.mark.parametrize(
    ("value", "aim", "met"),
    [(1.0, "<= 1.1", True), (1.2, "<= 1.1", False), (4.0, ">= 4", True), (3.9, ">= 4", False),
     (None, "<= 1", False), (2.0, "", None)],
)  # fmt: skip
def test_aims(value, aim, met):
    number = Number("n", value, aim=aim)
    assert number.met is met
    for alone in (True, False):
        assert ("**missed**" in number.cell(aim=alone)) is (met is False)


def test_an_aim_stands_beside_its_number_or_above_all_that_share_it(ticking):
    make, row = ticking
    report = make()
    rows = [("a", "<= 1"), ("b", "<= 1")], [("a", "<= 1"), ("b", ">= 2")]
    for part in rows:
        report.measure(
            "p", "p", lambda part=part: ([row(name, Number("r", 1, aim=aim)) for name, aim in part], "")
        )  # fmt: skip
    table = report.path.read_text()
    assert table.count("| r, aim <= 1 |") == 1
    assert table.count("1, aim <= 1 |") == 1
    assert table.count("1, aim >= 2: **missed** |") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (3, "3"), (12345.6, "12,346"), (0.12345, "0.123"), (2.34e-7, "2.3e-07")],
)  # fmt: skip
def test_numbers_are_shown_with_three_digits(value, text):
    assert shown(value) == text


# --- what differs ---


@pytest.mark.parametrize(
    ("one", "two", "gap"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 100.0], [1.0, 101.0], 0.01),
        ([0.5, 0.1], [0.5, 0.2], 0.1),
        ([1.0, float("nan")], [1.0, float("nan")], 0.0),
        ([1.0, float("inf")], [1.5, float("inf")], 0.5),
        ([1.0, float("nan")], [1.0, 2.0], None),
        ([1.0], [1.0, 2.0], None),
    ],
)
def test_the_largest_difference_is_relative_to_the_largest_value_or_one(one, two, gap):
    results = ({"values": torch.tensor(each)} for each in (one, two))
    [number, *_], note = gpu.difference(*results)
    assert number.value == (gap if gap is None else pytest.approx(gap))
    assert ("**differs**" in note) is (gap != 0)


def test_other_classes_and_tokens_are_counted():
    sides = [{"top": torch.tensor(top), "sure": torch.tensor(sure)} for top, sure in
             (([1, 2, 3], [True, False]), ([1, 3, 2], [True, False]))]  # fmt: skip
    [fractions, whole], note = gpu.difference(*sides)
    assert (fractions.value, whole.value, whole.met) == (0, 2, False)
    assert "**differs**: 2 of top" in note
    assert gpu.difference(sides[0], sides[0])[0][1].met


def test_a_field_on_one_side_only_differs_and_none_is_no_number():
    [number], note = gpu.difference({"a": torch.ones(1), "b": torch.ones(1)}, {"a": torch.ones(1)})
    assert number.value is None
    assert "**differs**: b" in note
    assert gpu.difference({"a": 1}, {"a": 2})[0] == ()


# --- counts ---

KERNELS = [Event("k", 0, 10, True), Event("k", 5, 20, True), Event("k", 30, 40, True)]


def test_time_in_which_the_device_works_counts_once():
    assert busy(KERNELS) == pytest.approx(0.03)
    assert busy([Event("host", 0, 100)]) == 0


def test_a_profile_is_counted_by_hand():
    host = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaStreamSynchronize", "aten::add",
            "aten::_local_scalar_dense", "cudaMemcpyAsync"]  # fmt: skip
    copies = [
        Event("Memcpy HtoD (Pageable -> Device)", 50, 55, True),
        Event("Memcpy DtoH (Device -> Pageable)", 60, 65, True),
    ]
    events = [*KERNELS, *copies, *(Event(name, 0, 1) for name in host)]
    values = {number.name: number.value for number in counts(events, 0.08, device=True)}
    assert values == {
        "launches": 2,
        "host to device": 1,
        "device to host": 1,
        "synchronisations": 1,
        "device busy": pytest.approx(0.04),
        "idle share": pytest.approx(0.5),
    }
    assert [number.name for number in counts(events, 0.08, device=False)] == [".item()"]


def test_a_device_that_reports_no_work_is_not_called_idle():
    values = {number.name: number.value for number in counts([Event("a", 0, 1)], 1, device=True)}
    assert values["idle share"] is None


def test_events_are_read_as_torch_records_them():
    def recorded(name, start, long, kind, **more):
        event = SimpleNamespace(**{key: (lambda value=value: value) for key, value in more.items()})
        event.name, event.start_ns, event.duration_ns = (
            (lambda: name),
            (lambda: start),
            (lambda: long),
        )
        event.device_type = lambda: kind
        return event

    kept = [recorded("k", 1000, 500, DeviceType.CUDA), recorded("o", 0, 100, DeviceType.CPU)]
    mark = recorded("mark", 0, 9, DeviceType.CPU, is_user_annotation=True)
    results = SimpleNamespace(events=lambda: [*kept, mark])
    profile = SimpleNamespace(profiler=SimpleNamespace(kineto_results=results))
    assert list(events_of(profile)) == [Event("k", 1, 1.5, True), Event("o", 0, 0.1)]


@pytest.mark.slow
def test_passes_and_module_calls_are_counted_and_the_model_is_as_before():
    model = small_model(2)
    tokens = torch.tensor([[5, 6, 7]])
    with counted(model) as plain:
        model.original_model(tokens)
    prompts = icl.texts(["The film was good. Nobody saw it."], model)
    with counted(model) as engine:
        icl.predict(model, prompts, progress=False)
    with counted(model, modules=False) as alone:
        icl.predict(model, prompts, progress=False)
    assert plain.passes == 1
    assert plain.modules > 10
    assert engine.passes == alone.passes > 0
    assert engine.modules > alone.modules == 0
    with counted(model) as nothing:
        pass
    assert (nothing.passes, nothing.modules) == (0, 0)
