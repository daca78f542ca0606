"""`load_task` by name: built-in tasks, changed templates, and the hub."""

import datasets
import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import Example, Template, known_task, known_tasks, load_task
from icl_mech.tasks.registry import OPEN_ANSWERS
from tests.said import Words

WORDS = Words(__file__)

OFFLINE = ("reviews", "headlines", "questions", "unnatural", "comparisons")
LABEL_WORDS = ("sst2", "agnews", "trec", "emo")
OVERTHINKING = (
    "ot-sst2", "sst2_ab", "ot-agnews", "ot-trec", "dbpedia", "rte", "mrpc", "sick",
    "medical_questions_pairs", "tweet_eval_hate", "tweet_eval_stance_atheism",
    "tweet_eval_stance_feminist", "ethos", "financial_phrasebank", "poem_sentiment",
)  # fmt: skip


def test_known_tasks_offline_ones_first():
    assert [(task.name, task.offline) for task in known_tasks()] == [
        *((name, True) for name in (*OFFLINE, *(task.name for task in OPEN_ANSWERS))),
        *((name, False) for name in (*LABEL_WORDS, *OVERTHINKING)),
    ]


def test_the_paper_each_task_is_written_after():
    papers = {task.name: task.paper for task in known_tasks()}
    for name in (*OFFLINE[:3], *LABEL_WORDS):
        assert papers[name] == "label words"
    for name in ("unnatural", *OVERTHINKING):
        assert papers[name] == "overthinking"


def test_what_is_known_of_one_task():
    for task in known_tasks():
        assert known_task(task.name) is task
        assert task.prompt_format() is task.prompt_format(0) is task.formats[0]
        assert (task.template, task.labels) == (task.formats[0].template, task.formats[0].labels)
    with WORDS.raises(TaskError, "what_known_task", "'rt'", "'rte'"):
        known_task("rt")


@pytest.mark.parametrize(
    ("names", "pattern", "labels"),
    [
        (("reviews", "sst2"), "Review: {text}\nSentiment: {label}", "Negative Positive"),
        (
            ("headlines", "agnews"),
            "Article: {text}\nAnswer: {label}",
            "World Sports Business Technology",
        ),
        (
            ("questions", "trec"),
            "Question: {text}\nAnswer Type: {label}",
            "Abbreviation Entity Description Person Location Number",
        ),
        (("emo",), "Dialogue: {text}\nEmotion: {label}", "Others Happy Sad Angry"),
    ],
)
def test_templates_of_the_label_words_paper(names, pattern, labels):
    known = {task.name: task for task in known_tasks()}
    for name in names:
        assert known[name].template == Template(pattern, separator="\n", narrative="")
        assert known[name].labels == tuple(labels.split())


def test_template_of_unnatural_opens_with_a_narrative():
    template = load_task("unnatural").template
    assert (template.pattern, template.separator) == ("{text}: {label}.", "\n\n")
    WORDS.exactly(template.narrative, "template_unnatural_opens_narrative")


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_tasks_say_where_they_come_from(name):
    task = load_task(name)
    assert task.name == name
    assert task.source == "icl_mech offline data"


def test_a_built_in_task_with_another_template_keeps_its_examples():
    plain, other = load_task("reviews"), load_task("reviews", template="{text} ={label}")
    assert other.template == Template("{text} ={label}")
    assert (other.labels, other.train, other.test) == (plain.labels, plain.train, plain.test)


def test_a_built_in_task_with_other_label_words_and_layout():
    plain = load_task("reviews")
    other = load_task("reviews", labels=("bad", "good"), separator="\n\n", narrative="Judge.")
    assert other.labels == ("bad", "good")
    assert other.train == plain.train
    assert other.template == Template(plain.template.pattern, "\n\n", "Judge.")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("text_column", "sentence"),
        ("label_column", "gold"),
        ("text2_column", "text2"),
        ("test_path", "test.csv"),
        ("test_fraction", 0.2),
    ],
)
@pytest.mark.parametrize("name", ["reviews", "sst2"])
def test_options_for_files_are_not_ignored(name, option, value):
    with pytest.raises(TaskError) as caught:
        load_task(name, **{option: value})
    WORDS.exactly(str(caught.value), "options_files_ignored", repr(name), option, repr(name))


def test_options_for_files_that_change_nothing():
    plain = load_task("reviews")
    assert plain == load_task(
        "reviews", text_column="text", label_column="label", test_fraction=0.5, seed=3
    )
    with WORDS.raises(TaskError, "options_files_change_nothing"):
        load_task("reviews", text_column="a", test_fraction=0.1)


def test_wrong_number_of_label_words():
    with pytest.raises(TaskError) as caught:
        load_task("reviews", labels=("bad", "fair", "good"))
    WORDS(str(caught.value), "wrong_number_label_words", "2", "3")


@pytest.mark.parametrize(
    ("name", "fragment"), [("review", "reviews"), ("agnew", "agnews"), ("xyzzy", "known agnews")]
)
def test_unknown_names_list_near_matches(name, fragment):
    with pytest.raises(TaskError) as caught:
        load_task(name)
    assert f"Unknown task {name!r}" in str(caught.value)
    WORDS(str(caught.value), fragment)


def test_hub_unreachable_names_the_offline_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(TaskError) as caught:
        load_task("sst2")
    message = str(caught.value)
    WORDS(message, "needs_a_data_set", "'sst2'", "'stanfordnlp/sst2'")
    assert "load_task('my.csv', template='sst2')" in message
    WORDS(
        message, "offline_tasks", "reviews, headlines, questions, unnatural, comparisons, antonyms"
    )


@pytest.mark.parametrize(
    ("name", "path", "columns", "test_split", "revision"),
    [
        ("sst2", "stanfordnlp/sst2", ("sentence", "label"), "validation", None),
        ("agnews", "fancyzhx/ag_news", ("text", "label"), "test", None),
        ("trec", "CogComp/trec", ("text", "coarse_label"), "test", "refs/convert/parquet"),
        ("emo", "SemEvalWorkshop/emo", ("text", "label"), "test", "refs/convert/parquet"),
    ],
)
def test_hub_columns_and_splits(monkeypatch, name, path, columns, test_split, revision):
    calls = []

    def load_dataset(hub_path, *, split, revision=None):
        calls.append((hub_path, split, revision))
        text, label = columns
        return datasets.Dataset.from_dict({text: [f"{split} a", f"{split} b"], label: [1, 0]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = load_task(name)
    assert calls == [(path, "train", revision), (path, test_split, revision)]
    assert task.train == (Example("train a", 1), Example("train b", 0))
    assert task.test == (Example(f"{test_split} a", 1), Example(f"{test_split} b", 0))
    assert task.source == f"hub {path}"


def test_hub_labels_that_are_hidden_are_refused(monkeypatch):
    def load_dataset(path, *, split, revision=None):
        return [{"sentence": "a", "label": -1}]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with WORDS.raises(TaskError, "hub_labels_hidden_refused", "2", "1", "-1"):
        load_task("sst2")
