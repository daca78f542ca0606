"""Prompts with open answers: what they display, what they are scored against, and what is refused."""

import itertools
from dataclasses import replace

import pytest

import icl_mech as icl
from icl_mech.errors import IclMechError, PromptError, TaskError
from icl_mech.models.loading import load_tokenizer
from icl_mech.prompts import PromptBatch
from icl_mech.tasks import Example, Task, Template
from tests.said import Words

WORDS = Words(__file__)

OFFLINE = ("antonyms", "plurals", "past_tense", "capitals", "english_french")
SETTINGS = ("correct", "permuted", "shuffled", "other")


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("smollm2-135m")


def words_of(prompt, tokenizer, role):
    spans = [span for span in prompt.spans if span.role == role]
    return [tokenizer.decode(prompt.tokens[s.start : s.stop]).strip() for s in spans]


def by_text(name):
    task = icl.load_task(name)
    return {example.text: example for example in (*task.train, *task.test)}


@pytest.mark.parametrize("name", OFFLINE)
@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
def test_what_demonstrations_display(name, demonstrations, tokenizer):
    known = by_text(name)
    how = {"shots": 4, "n": 8, "seed": 3, "demonstrations": demonstrations}
    for labels in SETTINGS:
        for prompt in icl.build_prompts(name, tokenizer, labels=labels, **how):
            texts = words_of(prompt, tokenizer, "demo_text")
            shown = words_of(prompt, tokenizer, "label_word")
            own = [known[text].answers[0] for text in texts]
            (asked,) = words_of(prompt, tokenizer, "query_text")
            assert asked not in texts
            assert prompt.labels[0] == known[asked].answers[0]
            assert prompt.answer == 0
            assert [prompt.labels[c] for c in prompt.label_classes] == shown
            if labels == "correct":
                assert shown == own
            elif labels == "other":
                assert shown == [known[text].other for text in texts]
                assert prompt.false_answer == 1
                assert prompt.labels[1] == known[asked].other
            else:
                assert sorted(shown) == sorted(own)
                assert prompt.false_answer is None
            if labels == "permuted":
                assert all(one != other for one, other in zip(shown, own, strict=True))


@pytest.mark.parametrize("name", OFFLINE)
def test_sides_of_one_seed_have_the_same_texts_and_choices(name, tokenizer):
    for labels in SETTINGS[1:]:
        true, false = icl.build_prompt_pairs(
            name, tokenizer, shots=3, n=6, seed=5, false_labels=labels, demonstrations="per_prompt"
        )
        for one, other in zip(true, false, strict=True):
            for role in ("demo_text", "query_text"):
                assert words_of(one, tokenizer, role) == words_of(other, tokenizer, role)
            assert one.label_words == other.label_words
            assert one.accepted == other.accepted


@pytest.mark.parametrize("name", OFFLINE)
@pytest.mark.parametrize("labels", ["correct", "other"])
def test_choices_begin_with_different_tokens_and_are_as_many_in_each_prompt(
    name, labels, tokenizer
):
    for shots in (0, 1, 5):
        prompts = icl.build_prompts(name, tokenizer, shots=shots, n=20, labels=labels)
        assert len({len(prompt.label_words) for prompt in prompts}) == 1
        for prompt in prompts:
            assert len(set(prompt.label_tokens)) == len(prompt.label_words)
            firsts = {word[0] for word in prompt.accepted}
            assert not firsts & set(prompt.label_tokens[1:])
            assert prompt.accepted[0] == prompt.label_words[0]


@pytest.mark.parametrize("name", OFFLINE)
def test_demonstrations_and_queries_share_no_word(name):
    task = icl.load_task(name)
    sides = [
        {word.casefold() for example in part for word in (example.text, *example.answers)}
        for part in (task.train, task.test)
    ]
    assert not sides[0] & sides[1]


def test_the_same_seed_draws_the_same_and_another_one_others(tokenizer):
    first, again, other = (
        icl.build_prompts("antonyms", tokenizer, shots=2, n=10, seed=seed) for seed in (1, 1, 2)
    )
    assert first.digest == again.digest != other.digest


def test_saved_and_loaded_prompts_are_equal(tokenizer):
    prompts = icl.build_prompts("capitals", tokenizer, shots=2, n=6, labels="other")
    loaded = PromptBatch.from_dict(prompts.to_dict())
    assert loaded.prompts == prompts.prompts
    assert loaded.digest == prompts.digest
    assert any(len(prompt.accepted) > 1 for prompt in loaded)


def test_anchors_are_the_first_tokens_of_displayed_answers(tokenizer):
    prompts = icl.build_prompts("capitals", tokenizer, shots=5, n=4)
    lengths = {span.stop - span.start for prompt in prompts for span in prompt.label_spans}
    assert len(lengths) > 1
    for prompt in prompts:
        assert prompt.anchors == tuple(span.start for span in prompt.label_spans)


def examples_of(prompts, tokenizer):
    both = [prompt.examples(tokenizer) for prompt in prompts]
    return {"demonstrations": both[0][0], "queries": [query for _, query in both]}


@pytest.mark.parametrize("name", OFFLINE)
def test_chosen_examples_make_the_prompts_they_were_read_from(name, tokenizer):
    known = by_text(name)
    drawn = icl.build_prompts(name, tokenizer, shots=4, n=6, seed=7)
    read = examples_of(drawn, tokenizer)
    again = icl.build_prompts(name, tokenizer, seed=7, **read)
    assert again.prompts == drawn.prompts
    assert again.digest == drawn.digest
    assert [query.answers for query in read["queries"]] == [
        known[query.text].answers for query in read["queries"]
    ]
    whole = {key: [known[own.text] for own in found] for key, found in read.items()}
    assert icl.build_prompts(name, tokenizer, seed=7, **whole).prompts == drawn.prompts
    assert again.source["demonstrations"] == again.source["queries"] == "given"


@pytest.mark.parametrize("labels", SETTINGS[1:])
def test_false_prompts_are_made_again_with_their_choices(labels, tokenizer):
    false = icl.build_prompts("capitals", tokenizer, shots=4, n=6, labels=labels)
    own = 2 if labels == "other" else 1
    again = icl.build_prompts(
        "capitals", tokenizer, choices=false[0].labels[own:], **examples_of(false, tokenizer)
    )
    expected = [replace(prompt, false_answer=None) for prompt in false]
    assert list(again) == expected


def test_choices_stay_whatever_is_displayed_and_are_as_many_in_every_prompt(tokenizer):
    words = ["cold", "small", "warm"]
    shown = [Example("hot", answers=("cold",)), Example("big", answers=("small",))]
    false = [replace(shown[0], answers=("warm",)), shown[1]]
    queries = [Example("up", answers=("down",)), Example("cool", answers=("warm",), other="chilly")]
    true, other = (
        icl.build_prompts("antonyms", tokenizer, demonstrations=own, queries=queries, choices=words)
        for own in (shown, false)
    )
    assert [prompt.labels for prompt in true] == [prompt.labels for prompt in other]
    assert true[0].labels[:4] == ("down", *words)
    assert true[1].labels[:4] == ("warm", "chilly", "cold", "small")
    assert {len(prompt.labels) for prompt in true} == {5}
    assert [own.label_classes[0] for own in (true[0], other[0])] == [1, 3]
    typed = [replace(shown[0], answers=("blue",)), shown[1]]
    more = icl.build_prompts(
        "antonyms", tokenizer, demonstrations=typed, queries=queries[:1], choices=words
    )
    assert more[0].labels == ("down", *words, "blue")


def test_chosen_queries_are_none_of_the_drawn_demonstrations(tokenizer):
    task = icl.load_task("antonyms")
    queries = task.train[:30]
    prompts = icl.build_prompts(task, tokenizer, shots=3, queries=queries[:3], split="train")
    demos = set(words_of(prompts[0], tokenizer, "demo_text"))
    assert len(demos) == 3
    assert not demos & {query.text for query in queries[:3]}
    true, false = icl.build_prompt_pairs(
        task, tokenizer, demonstrations=task.train[:4], queries=task.test[:1], false_labels="other"
    )
    assert words_of(true[0], tokenizer, "demo_text") == [own.text for own in task.train[:4]]
    assert words_of(false[0], tokenizer, "label_word") == [own.other for own in task.train[:4]]


def test_several_right_answers_are_read_with_the_tokenizer_only(tokenizer):
    prompts = icl.build_prompts("capitals", tokenizer, shots=2, n=12)
    several = next(prompt for prompt in prompts if len(prompt.accepted) > 1)
    assert len(several.examples(tokenizer)[1].answers) == len(several.accepted)
    with WORDS.raises(PromptError, "several_right_answers_read"):
        several.examples()


def chosen(tokenizer, demonstrations, queries, **options):
    given = [
        [Example(text, answers=tuple(answer.split("|"))) for text, answer in own]
        for own in (demonstrations, queries)
    ]
    return icl.build_prompts(
        "antonyms", tokenizer, demonstrations=given[0], queries=given[1], **options
    )


def pairs(*rows, template="{text}: {label}"):
    examples = [
        Example(text, answers=tuple(answers.split("|")), other=other)
        for text, answers, other in rows
    ]
    return Task("made", Template(template), (), tuple(examples[::2]), tuple(examples[1::2]))


ROWS = [
    (text, f"{text} {number}", None)
    for number, text in enumerate(
        [
            "north",
            "bread",
            "river",
            "stone",
            "cloud",
            "horse",
            "table",
            "green",
            "seven",
            "music",
            "paper",
            "light",
        ]
    )
]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda t: pairs(("a", "", None)), TaskError, "empty"),
        (lambda t: pairs(("a", "b|c", "c")), TaskError, "both right answer"),
        (
            lambda t: icl.build_prompts(pairs(*ROWS), t, labels="other", shots=2, n=2),
            TaskError,
            "12 examples",
        ),
        (
            lambda t: icl.build_prompts("antonyms", t, labels="random", shots=2, n=2),
            TaskError,
            "defined",
        ),
        (
            lambda t: icl.build_prompts("antonyms", t, labels="permuted", shots=1, n=2),
            PromptError,
            "shots 2",
        ),
        (lambda t: icl.build_prompts("antonyms", t, total="max", n=2), PromptError, "classes"),
        (
            lambda t: icl.build_prompts("antonyms", t, shots=2, total=3, n=2),
            PromptError,
            "give them",
        ),
        (
            lambda t: icl.build_prompts("antonyms", t, shots=5000, n=2),
            PromptError,
            "5000 demonstrations",
        ),
        (lambda t: icl.build_prompts("antonyms", t, n=5000), PromptError, "n5000"),
        (
            lambda t: icl.build_prompts("antonyms", t, n=2, queries=[Example("a", answers=("b",))]),
            PromptError,
            "n2 1",
        ),
        (
            lambda t: icl.build_prompts("antonyms", t, queries=[Example("a", 1)]),
            PromptError,
            "queries[0] a",
        ),
        (
            lambda t: chosen(t, [("hot", "cold")], [("hot", "warm")]),
            PromptError,
            "among demonstrations",
        ),
        (
            lambda t: chosen(t, [("hot", "cold"), ("big", "cold one")], [("up", "down")]),
            PromptError,
            "cold coldone",
        ),
        (
            lambda t: chosen(t, [("hot", "cold")], [("up", "down|cold")]),
            PromptError,
            "coldrighttoo cold",
        ),
        (
            lambda t: chosen(t, [("hot", "cold")], [("up", "down")], shots=1),
            PromptError,
            "leave them out",
        ),
        (
            lambda t: chosen(t, [("hot", "cold")], [("up", "down")], labels="other"),
            TaskError,
            "2 examples",
        ),
        (
            lambda t: chosen(
                t, [("hot", "cold"), ("icy", "cold")], [("up", "down")], labels="permuted"
            ),
            PromptError,
            "cold",
        ),
        (lambda t: icl.build_prompts("antonyms", t, n=2, choices="ab"), PromptError, "list"),
        (
            lambda t: icl.build_prompts("antonyms", t, n=2, choices=["a", " "]),
            PromptError,
            "choices[1]",
        ),
        (
            lambda t: icl.build_prompts("antonyms", t, n=2, choices=["warm", "warm"]),
            PromptError,
            "0 warm",
        ),
        (
            lambda t: icl.build_prompts(
                "antonyms", t, n=2, choices=["a"], demonstrations="per_prompt"
            ),
            PromptError,
            "same all prompts",
        ),
        (lambda t: icl.build_prompts("reviews", t, n=2, choices=["a"]), PromptError, "has classes"),
        (lambda t: icl.load_task("antonyms", answers="answer"), TaskError, "would effect"),
        (
            lambda t: PromptBatch(
                (*icl.build_prompts("antonyms", t, n=1), *icl.build_prompts("reviews", t, n=1))
            ),
            PromptError,
            "separate batches",
        ),
        (
            lambda t: icl.build_prompts("antonyms", t, n=2).label_tokens,
            PromptError,
            "choice_tokens",
        ),
    ],
)
def test_bad_input_is_refused_with_what_was_found(call, error, says, tokenizer, unchecked):
    with WORDS.raises(error, says) as found:
        call(tokenizer)
    assert isinstance(found.value, IclMechError)


def test_an_answer_longer_than_the_context_is_refused(tokenizer):
    rows = list(ROWS)
    rows[0] = (rows[0][0], "good " * tokenizer.model_max_length, None)
    with WORDS.raises(PromptError, "answer_longer_than_context"):
        icl.build_prompts(pairs(*rows), tokenizer, shots=6, n=2)


def test_choices_take_one_word_of_those_that_begin_alike(tokenizer):
    """Demonstrations whose answers begin with one token cannot stand in one prompt."""
    rows = [(f"{t} {k}", f"{t} {k}", None) for k in range(3) for t in ["north", "bread", "river"]]
    with WORDS.raises(PromptError, "choices_take_word_begin"):
        icl.build_prompts(pairs(*rows), tokenizer, shots=4, n=1)
    prompts = icl.build_prompts(pairs(*ROWS), tokenizer, shots=3, n=2)
    for one, other in itertools.combinations(prompts[0].label_words, 2):
        assert one[0] != other[0]


CONTINENTS = Task(
    "continents", Template("{text}: {label}"), (),
    tuple(Example(own, answers=(where,)) for own, where in (
        ("France", "Europe"), ("Spain", "Europe"), ("Italy", "Europe"), ("Japan", "Asia"),
        ("India", "Asia"), ("Kenya", "Africa"), ("Egypt", "Africa"),
    )),
    tuple(Example(own, answers=(where,)) for own, where in (
        ("Poland", "Europe"), ("China", "Asia"), ("Ghana", "Africa"), ("Peru", "America"), ("Fiji", "Oceania"),
    )),
)  # fmt: skip


@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
def test_nobody_keeps_its_answer_where_answers_repeat(demonstrations, tokenizer):
    for seed in range(8):
        true, false = icl.build_prompt_pairs(
            CONTINENTS, tokenizer, shots=3, n=3, seed=seed, demonstrations=demonstrations
        )
        for one, other in zip(true, false, strict=True):
            assert not any(
                own == shown
                for own, shown in zip(one.label_classes, other.label_classes, strict=True)
            )
    with WORDS.raises(PromptError, "nobody_keeps_answer_where", "4"):
        icl.build_prompt_pairs(CONTINENTS, tokenizer, shots=4, n=3)


def test_no_text_of_a_query_is_shown_whatever_is_accepted(tokenizer):
    train = [Example(own, answers=(f"{own}s",)) for own in ("cat", "dog", "tree", "lamp")]
    test = [
        Example(own, answers=(f"{own}s", f"{own}ren")) for own in ("cat", "dog", "tree", "lamp")
    ]
    task = Task("spaced", Template("{text}: {label}"), (), tuple(train), tuple(test))
    for seed in range(5):
        for prompt in icl.build_prompts(task, tokenizer, shots=2, n=2, seed=seed):
            (asked,) = words_of(prompt, tokenizer, "query_text")
            assert asked not in words_of(prompt, tokenizer, "demo_text")


def test_pairs_are_drawn_and_checked_as_single_sets_are(tokenizer, unchecked):
    def options(**given):
        pair = icl.build_prompt_pairs("plurals", tokenizer, n=3, false_labels="other", **given)
        return pair[0].source, icl.build_prompts("plurals", tokenizer, n=3, **given).source

    for given in ({"demonstrations": None}, {"shots": 2}, {"total": 2}):
        one, other = options(**given)
        assert one["demonstrations"] == other["demonstrations"]
    assert options(total=2)[0]["demonstrations"] == "per_prompt"
    for wrong in (
        {"n": 0}, {"shots": -1}, {"seed": -1}, {"split": "tst"}, {"demonstrations": "per_promt"},
        {"balanced": False}, {"total": 2, "demonstrations": "shared"},
    ):  # fmt: skip
        for build in (icl.build_prompt_pairs, icl.build_prompts):
            with pytest.raises(PromptError):
                build("plurals", tokenizer, **{"n": 3, **wrong})


def test_kinds_of_answers_are_told_apart(tokenizer):
    (prompt,) = icl.build_prompts("plurals", tokenizer, shots=1, n=1)
    with WORDS.raises(PromptError, "kinds_answers_told_apart"):
        replace(prompt, answer=1)
    bare = replace(prompt, accepted=())
    assert PromptBatch((bare,)).digest != PromptBatch((replace(bare, kind="classes"),)).digest
