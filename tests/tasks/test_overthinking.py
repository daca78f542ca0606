"""Tasks of *Overthinking the Truth*: each is written as its paper's code writes it."""

import copy
import json

import datasets
import pytest

from icl_mech.cli.lists import tasks
from icl_mech.errors import TaskError
from icl_mech.prompts import build_prompts
from icl_mech.tasks import Example, Template, known_task, known_tasks, load_task
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

# Name, number of the format, label words in class order, template and narrative in the
# notation of the paper's code. Its order of TREC's label words is not that of the data set.
PUBLISHED = (
    ("ot-sst2", 0, "Negative|Positive", "Review: {}\nAnswer: {}.", ""),
    ("ot-sst2", 1, "bad|good", "Review: {}\nAnswer: {}.", ""),
    (
        "ot-sst2", 2, "bad|good",
        "My review for last night’s film: {} The critics agreed that this movie was {}.",
        "Here is what our critics think for this month’s films.",
    ),
    (
        "ot-sst2", 3, "negative|positive",
        'One of our critics wrote "{}". Her sentiment towards the film was {}.',
        "Critical reception [ edit ].",
    ),
    (
        "ot-sst2", 4, "bad|good",
        'In a contemporary review, Roger Ebert wrote: "{}". Entertainment Weekly  agreed, and '
        'the overall critical reception of the film was {}.',
        "",
    ),
    ("ot-sst2", 5, "No|Yes", "Review: {}\nPositive Review? {}.", ""),
    (
        "ot-sst2", 6, "Negative|Positive",
        "Review: {}\nQuestion: Is the sentiment of the above review Positive or "
        "Negative?\nAnswer: {}.",
        "",
    ),
    (
        "ot-sst2", 7, "bad|good",
        "Review: {}\nQuestion: Did the author think that the movie was good or bad?\nAnswer: {}.",
        "",
    ),
    (
        "ot-sst2", 8, "bad|good",
        "Question: Did the author of the following tweet think that the movie was good or "
        "bad?\nTweet: {}\nAnswer: {}.",
        "",
    ),
    ("ot-sst2", 9, "bad|good", "{} My overall feeling was that the movie was {}.", ""),
    ("ot-sst2", 10, "liked|hated", "{} I {}.", ""),
    (
        "ot-sst2", 11, "0|5",
        "{} My friend asked me if I would give the movie 0 or 5 stars, I said {}.",
        "",
    ),
    ("ot-sst2", 12, "Negative|Positive", "Input: {}\nSentiment: {}.", ""),
    ("ot-sst2", 13, "False|True", "Review: {}\nPositive: {}.", ""),
    ("ot-sst2", 14, "0|5", "Review: {}\nStars: {}.", ""),
    ("ot-agnews", 0, "World|Sports|Business|Science", "Article: {}\nAnswer: {}.", ""),
    (
        "ot-trec", 0, "Abbreviation|Entity|Description|Person|Location|Number",
        "Question: {}\nAnswer Type: {}.",
        "Classify the questions based on whether their answer type is a Number, Location, "
        "Person, Description, Entity, or Abbreviation.",
    ),
    (
        "dbpedia", 0,
        "Company|School|Artist|Athlete|Politician|Transportation|Building|Nature|Village|Animal|"
        "Plant|Album|Film|Book",
        "Article: {}\nAnswer: {}.",
        "Classify the documents based on whether they are about a Company, School, Artist, "
        "Athlete, Politician, Transportation, Building, Nature, Village, Animal, Plant, Album, "
        "Film, or Book.",
    ),
    ("rte", 0, "True|False", "{}.\nquestion: {}. True or False?\nThe answer is: {}.", ""),
    ("mrpc", 0, "False|True", "{}.\nquestion: {}. True or False?\nThe answer is: {}.", ""),
    ("tweet_eval_hate", 0, "favor|against", "Tweet: {}\nSentiment: {}.", ""),
    ("sick", 0, "True|Not sure|False", "{}.\nquestion: {}. True or False?\nThe answer is: {}.", ""),
    ("poem_sentiment", 0, "negative|positive|no impact", "{}:\nThe sentiment is: {}.", ""),
    (
        "ethos", 0, "no|yes",
        "Text: {}\nAnswer: {}.",
        "Is the following hate speech? Answer yes or no.",
    ),
    ("financial_phrasebank", 0, "Negative|Neutral|Positive", "Text: {}\nSentiment: {}.", ""),
    (
        "medical_questions_pairs", 0, "not|equivalent",
        "Question: {}.\nQuestion: {}.\nAnswer: {}.",
        "Determine if the two questions are equivalent or not.",
    ),
    (
        "tweet_eval_stance_feminist", 0, "neither|no|yes",
        "Tweet: {}\nAnswer: {}.",
        "Determine if the text supports feminism. Answer with yes, no, or neither.",
    ),
    (
        "tweet_eval_stance_atheism", 0, "neither|no|yes",
        "Tweet: {}\nAnswer: {}.",
        "Determine if the text supports atheism. Answer with yes, no, or neither.",
    ),
    (
        "unnatural", 0, "animal|plant/vegetable|sport",
        "{}: {}.",
        "Consider the categories plant/vegetable, sport, and animal. Classify each object in "
        "its category.",
    ),
    ("sst2_ab", 0, "A|B", "Review: {}\nAnswer: {}.", ""),
)  # fmt: skip

ROWS = {(name, number): row for name, number, *row in PUBLISHED}
inexact = pytest.mark.filterwarnings("ignore:In .* prompts the tokenizer would merge")


@pytest.fixture
def data(tmp_path):
    """Writes a file with three pairs of texts per class; gives its path."""

    def write(n_classes):
        rows = [
            {"text": f"first {label} {number}", "text2": f"second {label} {number}", "label": label}
            for label in range(n_classes)
            for number in range(3)
        ]
        path = tmp_path / "made_up.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return path

    return write


def tokenizer_with(words):
    """A tokenizer that knows each of the words, with its leading space, as one token."""
    tokenizer = copy.deepcopy(tiny_tokenizer("bpe"))
    tokenizer.add_tokens([f" {word}" for word in words])
    return tokenizer


def shown(prompt, tokenizer):
    return tokenizer.decode(list(prompt.tokens), clean_up_tokenization_spaces=False)


# How they are written


def test_every_format_is_listed_above():
    assert set(ROWS) == {
        (task.name, number)
        for task in known_tasks()
        if task.paper == "overthinking"
        for number in range(len(task.formats))
    }


@inexact
@pytest.mark.filterwarnings("ignore:prompt_format=10")
@pytest.mark.parametrize(("name", "number"), ROWS)
def test_prompts_read_as_published(data, name, number):
    words, published, narrative = ROWS[name, number]
    words = words.split("|")
    n_texts = published.count("{}") - 1
    tokenizer = tokenizer_with(words)

    def written(text, word):
        first = text.removeprefix("second").removeprefix("first")
        return published.format(*(f"first{first}", f"second{first}")[:n_texts], word)

    task = load_task(data(len(words)), template=name, prompt_format=number)
    assert task.labels == tuple(words)
    for prompt in build_prompts(
        task, tokenizer, shots=1, n=len(words), demonstrations="per_prompt"
    ):
        texts = [
            tokenizer.decode(list(prompt.tokens[span.start : span.stop])).strip()
            for span in prompt.spans
            if span.role in ("demo_text", "query_text")
        ]
        *demonstrations, query = [text for text in texts if text.startswith("first")]
        assert len(texts) == n_texts * (len(words) + 1)
        expected = [
            *([narrative] if narrative else []),
            *(written(text, words[int(text.split()[1])]) for text in demonstrations),
            written(query, "").removesuffix(" ."),
        ]
        assert shown(prompt, tokenizer) == "\n\n".join(expected)
        assert prompt.answer == int(query.split()[1])


def test_the_formats_without_a_fault():
    task = known_task("ot-sst2")
    assert task.sound_formats == (*range(10), *range(11, 15))
    assert "swapped" in task.formats[10].fault
    for other in known_tasks():
        if other is not task:
            assert other.sound_formats == (0,)


def test_a_format_with_a_fault_is_told(data, recwarn):
    with WORDS.warns(UserWarning, "format_fault_told", "10", "'ot-sst2'"):
        task = load_task(data(2), template="ot-sst2", prompt_format=10)
    assert task.labels == ("liked", "hated")
    recwarn.clear()
    right = load_task(data(2), template="ot-sst2", prompt_format=10, labels=("hated", "liked"))
    assert right.labels == ("hated", "liked")
    assert not recwarn


@pytest.mark.parametrize(
    ("name", "number", "there_are"),
    [
        ("ot-sst2", 15, "formats 0 to 14"),
        ("ot-sst2", -1, "formats 0 to 14"),
        ("rte", 1, "format 0"),
    ],
)
def test_formats_there_are_not(data, name, number, there_are):
    with pytest.raises(TaskError) as caught:
        load_task(data(2), template=name, prompt_format=number)
    WORDS.exactly(str(caught.value), there_are, repr(name), number)


@pytest.mark.parametrize("template", ["{text}: {label}", Template("{text}: {label}")])
def test_a_pattern_has_no_numbered_formats(data, template):
    for source in (data(2), "reviews"):
        with WORDS.raises(TaskError, "pattern_no_numbered_formats", "1"):
            load_task(source, template=template, prompt_format=1, labels=("no", "yes"))


def test_digits_are_compared_behind_a_blank_of_their_own(data):
    # Tokenizers that write numbers digit by digit: "_" "5".
    task = load_task(data(2), template="ot-sst2", prompt_format=14)
    tokenizer = tiny_tokenizer("sentencepiece")
    batch = build_prompts(task, tokenizer, n=2)
    assert [one.text for one in batch.candidates] == ["0", "5"]
    assert {tokenizer.convert_ids_to_tokens(p.tokens[p.target]) for p in batch} == {"▁"}
    assert batch.score == "first"


def test_texts_of_one_task_in_the_format_of_another():
    plain = load_task("reviews")
    task = load_task("reviews", template="ot-sst2", prompt_format=3)
    assert task.template == known_task("ot-sst2").formats[3].template
    assert task.labels == ("negative", "positive")
    assert (task.train, task.test) == (plain.train, plain.test)
    own = load_task("reviews", template="ot-sst2", prompt_format=3, labels=("dull", "fine"))
    assert own.labels == ("dull", "fine")
    assert load_task("headlines", template="ot-agnews").labels[3] == "Science"
    with pytest.raises(TaskError) as caught:
        load_task("reviews", template="unnatural")
    WORDS(str(caught.value), "texts_task_format_another", "2", "'unnatural'", "3")


def test_label_words_of_trec_stand_in_the_order_of_its_classes():
    # The data set: ABBR, ENTY, DESC, HUM, LOC, NUM.
    for name in ("trec", "ot-trec"):
        assert known_task(name).labels == (
            "Abbreviation", "Entity", "Description", "Person", "Location", "Number",
        )  # fmt: skip
    assert "order" in known_task("ot-trec").note


# Where their data is

CONVERTED = {"revision": "refs/convert/parquet"}
SST2 = ("stanfordnlp/sst2", {}, "train validation", "sentence label")
HUB = {
    "ot-sst2": SST2,
    "sst2_ab": SST2,
    "ot-agnews": ("fancyzhx/ag_news", {}, "train test", "text label"),
    "ot-trec": ("CogComp/trec", CONVERTED, "train test", "text coarse_label"),
    "dbpedia": ("fancyzhx/dbpedia_14", {}, "train test", "content label"),
    "rte": ("nyu-mll/glue", {"name": "rte"}, "train validation", "sentence1 label sentence2"),
    "mrpc": ("nyu-mll/glue", {"name": "mrpc"}, "train validation", "sentence1 label sentence2"),
    "sick": ("RobZamp/sick", CONVERTED, "train test", "sentence_A label sentence_B"),
    "tweet_eval_hate": ("cardiffnlp/tweet_eval", {"name": "hate"}, "train test", "text label"),
    "tweet_eval_stance_atheism": (
        "cardiffnlp/tweet_eval", {"name": "stance_atheism"}, "train test", "text label",
    ),
    "tweet_eval_stance_feminist": (
        "cardiffnlp/tweet_eval", {"name": "stance_feminist"}, "train test", "text label",
    ),
    "poem_sentiment": (
        "google-research-datasets/poem_sentiment", {}, "train validation+test", "verse_text label",
    ),
    "medical_questions_pairs": (
        "curaihealth/medical_questions_pairs", CONVERTED, "train", "question_1 label question_2",
    ),
    "ethos": ("iamollas/ethos", {**CONVERTED, "data_dir": "binary"}, "train", "text label"),
    "financial_phrasebank": (
        "takala/financial_phrasebank", {**CONVERTED, "data_dir": "sentences_allagree"},
        "train", "sentence label",
    ),
}  # fmt: skip


@pytest.fixture
def hub(monkeypatch):
    """Answers for the hub with the given rows; gives the list of what was asked."""

    def answer(rows_of):
        asked = []

        def load_dataset(path, *, split, revision=None, **options):
            asked.append((path, split, revision, options))
            return datasets.Dataset.from_list(rows_of(split))

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return asked

    return answer


def test_all_of_them_have_data():
    assert {task.name for task in known_tasks() if task.paper == "overthinking"} == {
        *HUB, "unnatural",
    }  # fmt: skip


@pytest.mark.parametrize("name", HUB)
def test_hub_configurations_splits_and_columns(hub, name):
    path, options, splits, columns = HUB[name]
    text, label, *text2 = columns.split()

    def rows_of(split):
        return [
            {
                label: number % 2,
                text: f"{split} {number}",
                **dict.fromkeys(text2, f"{split} pair {number}"),
            }
            for number in range(4)
        ]

    asked = hub(rows_of)
    task = load_task(name)
    revision, config = options.get("revision"), {**options}
    config.pop("revision", None)
    assert asked == [(path, split, revision, config) for split in splits.split()]
    assert task.source == f"hub {path}"
    assert task.template.is_pair == bool(text2)
    everything = {
        Example(f"{split} {number}", number % 2, f"{split} pair {number}" if text2 else None)
        for split in splits.split()
        for number in range(4)
    }
    assert {*task.train, *task.test} == everything
    if len(splits.split()) == 2:
        assert {example.text.split()[0] for example in task.test} == {splits.split()[1]}
    assert len(task.train) == len(task.test) == len(everything) / 2


def test_a_format_of_a_public_data_set(hub):
    hub(lambda split: [{"sentence": "a", "label": 1}])
    task = load_task("ot-sst2", prompt_format=11, overlap="keep")
    assert task.labels == ("0", "5")
    assert task.template.pattern.endswith("I said {label}.")
    assert task.train == (Example("a", 1),)


def test_verses_of_mixed_sentiment_are_left_out(hub):
    hub(lambda split: [{"verse_text": f"{split} {n}", "label": n} for n in range(4)])
    task = load_task("poem_sentiment")
    assert [example.label for example in task.train] == [0, 1, 2]
    assert [example.text for example in task.test] == [f"validation+test {n}" for n in range(3)]


def test_other_classes_without_a_label_word_are_refused(hub):
    hub(lambda split: [{"text": "a", "label": 2}])
    with WORDS.raises(TaskError, "other_classes_without_label", "1", "2"):
        load_task("tweet_eval_hate")


def test_the_share_kept_for_testing_of_a_set_without_a_test_split(hub):
    hub(lambda split: [{"text": f"t{n}", "label": n % 2} for n in range(20)])
    sizes = [
        tuple(map(len, load_task("ethos", test_fraction=f).by_class("test"))) for f in (0.2, 0.7)
    ]
    assert sizes == [(2, 2), (7, 7)]
    assert load_task("ethos", seed=1).test != load_task("ethos", seed=2).test
    with WORDS.raises(TaskError, "share_kept_testing_set", "'ot-sst2'"):
        load_task("ot-sst2", test_fraction=0.2)


@pytest.mark.parametrize("fraction", [0.5, 0.2])
def test_pairs_of_one_question_are_not_torn_apart(hub, fraction):
    hub(
        lambda split: [
            {"question_1": f"q{n}", "question_2": f"{n} {label}", "label": label}
            for label in range(2)
            for n in range(20)
        ]
    )
    task = load_task("medical_questions_pairs", test_fraction=fraction)
    train, test = ({example.text for example in part} for part in (task.train, task.test))
    assert not train & test
    assert tuple(map(len, task.by_class("test"))) == (20 * fraction, 20 * fraction)


@pytest.mark.parametrize(
    "error", [RuntimeError("Dataset scripts are no longer supported"), OSError()]
)
def test_a_data_set_the_hub_does_not_give(monkeypatch, error):
    def load_dataset(*args, **options):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(TaskError) as caught:
        load_task("rte")
    WORDS(str(caught.value), "data_set_hub_give", "'rte'", "'nyu-mll/glue'")
    assert f"({type(error).__name__})" in str(caught.value)
    assert "load_task('my.csv', template='rte')" in str(caught.value)


# On the command line


def test_the_command_line_shows_all_formats(capsys):
    tasks("ot-sst2")
    blocks = capsys.readouterr().out.strip().split("\n\nformat ")
    assert len(blocks) == 15
    WORDS.starts(blocks[10], "command_line_shows_all", "10")
    WORDS(blocks[2], "command_line_shows_all_2")
    tasks("ot-trec")
    assert capsys.readouterr().out == (
        "Classify the questions based on whether their answer type is a Number, Location, Person, "
        "Description, Entity, or Abbreviation.\n\nQuestion: {text}\nAnswer Type: {label}.\n"
        "labels: Abbreviation, Entity, Description, Person, Location, Number\n"
    )
