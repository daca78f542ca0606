"""Sets of texts: what a seed draws, files, and what is refused."""

import json

import pytest

from icl_mech import Example, Task, TextSet, texts
from icl_mech.errors import PromptError
from tests.prompts.cases import REVIEW, SENTIMENTS
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

BPE = tiny_tokenizer("bpe")
TEXTS = [f"Story {i} was good. It was bad. We left." for i in range(6)]
SET = TextSet("stories", TEXTS)


def read(batch):
    return ["".join(prompt.pieces) for prompt in batch]


def test_a_seed_draws_some_without_repetition():
    drawn = SET.prompts(BPE, n=4, seed=1)
    assert len(set(read(drawn))) == 4
    assert set(read(drawn)) <= set(TEXTS)
    assert read(drawn) == read(SET.prompts(BPE, n=4, seed=1)) != read(SET.prompts(BPE, n=4, seed=2))
    assert read(SET.prompts(BPE, n=2, seed=1)) == read(drawn)[:2]
    assert drawn.source["task"] == {"name": "stories", "digest": SET.digest}
    assert drawn.source["seed"] == 1


def test_all_of_them_are_those_of_texts():
    whole = SET.prompts(BPE)
    assert whole.prompts == texts(TEXTS, BPE).prompts
    assert "seed" not in whole.source


@pytest.mark.filterwarnings("ignore:.*would merge text")
def test_given_spans_go_with_their_texts():
    spans = [[(0, 8 + i % 2), (10, 20)] for i in range(6)]
    drawn = TextSet("stories", TEXTS, spans).prompts(BPE, n=6, seed=3)
    own = dict(zip(TEXTS, texts(TEXTS, BPE, spans=spans).text_spans, strict=True))
    assert list(drawn.text_spans) == [own[text] for text in read(drawn)]


def test_files_and_tasks(tmp_path):
    plain, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("\n---\n".join(TEXTS))
    lines.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    assert TextSet.load(plain).texts == TextSet.load(lines, name="x").texts == tuple(TEXTS)
    assert TextSet.load(plain).name == "a.txt"
    examples = (Example("One. Two.", 0), Example("alone", 1), Example("One. Two.", 1))
    task = Task("t", REVIEW, SENTIMENTS, examples, examples)
    assert TextSet.of_task(task).texts == ("One. Two.",)
    with WORDS.raises(PromptError, "files_tasks", "1"):
        TextSet.of_task(Task("t", REVIEW, SENTIMENTS, examples, examples[1:2]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "name text set"),
        ({"texts": []}, "stories"),
        ({"texts": "one"}, "str give list"),
        ({"texts": ["a", ""]}, "1 stories"),
        ({"texts": ["a", "a"]}, "text twice"),
        ({"spans": "words"}, "spanswords"),
        ({"spans": [[(0, 1)]]}, "list intervals each"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be(fields, message):
    with WORDS.raises(PromptError, message):
        TextSet(**{"name": "stories", "texts": TEXTS, **fields})


def test_more_than_there_are():
    with WORDS.raises(PromptError, "more_than_there", "6", "7"):
        SET.prompts(BPE, n=7)
