"""Prompts as chats: the tokenizer's own template, whatever it writes around turns."""

import copy
from datetime import date

import pytest

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.prompts import build_prompt_pairs, build_prompts
from tests.prompts.cases import REVIEW, one_each
from tests.said import Words
from tests.texts.kinds import joining
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

SIGNS = ("<|s|>", "<|e|>", "<|end|>", "<|final|>", "<|bos|>")
TURN = "{{ '<|s|>' + m.role + '\n' + m.content + '<|e|>\n' }}"
BEGIN = "{%- if add_generation_prompt %}{{ '<|s|>assistant\n' }}{%- endif %}"
PLAIN = "{%- for m in messages %}" + TURN + "{%- endfor %}" + BEGIN
SYSTEM = (
    "{%- if messages[0].role != 'system' %}{{ '<|s|>system\nBe kind.<|e|>\n' }}{%- endif %}" + PLAIN
)
DATED = "{{ '<|bos|>Today: ' + strftime_now('%d %b %Y') + '\n' }}" + PLAIN
TRIMMED = PLAIN.replace("m.content", "(m.content | trim)")
THINKING = (
    "{%- for m in messages %}{%- if m.role == 'assistant' and loop.last %}"
    "{{ '<|s|>assistant\n<think>\n\n</think>\n\n' + m.content + '<|e|>\n' }}"
    "{%- else %}" + TURN + "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|s|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)
CHANNELS = (
    "{%- for m in messages %}{%- if m.role == 'assistant' %}"
    "{{ '<|s|>assistant<|final|>' + m.content + ('<|end|>' if loop.last else '<|e|>') }}"
    "{%- else %}{{ '<|s|>' + m.role + '\n' + m.content + '<|e|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|s|>assistant' }}{%- endif %}"
)
OPENED = PLAIN.replace("{{ '<|s|>assistant\n' }}", "{{ '<|s|>assistant\n<think>\n' }}")
TEMPLATES = {
    "plain": (PLAIN, {}),
    "system": (SYSTEM, {}),
    "dated": (DATED, {"today": "2026-01-02"}),
    "trimmed": (TRIMMED, {}),
    "thinking on": (THINKING, {"template_kwargs": {"enable_thinking": True}}),
    "thinking off": (THINKING, {"template_kwargs": {"enable_thinking": False}}),
    "prefilled": (PLAIN, {"prefill": "<think>\n\n</think>\n\n"}),
    "channels": (CHANNELS, {}),
    "opened": (OPENED, {}),
}
ANSWER = {
    "thinking off": "<|s|>assistant\n<think>\n\n</think>\n\n",
    "prefilled": "<|s|>assistant\n<think>\n\n</think>\n\n",
    "channels": "<|s|>assistant<|final|>",
    "opened": "<|s|>assistant\n<think>\n",
}
QUERY = "a film so so"


def chatty(template, kind="bpe"):
    tokenizer = joining() if kind == "joining" else tiny_tokenizer(kind)
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": list(SIGNS)})
    tokenizer.chat_template = template
    return tokenizer


def rendered(tokenizer, prompt, task, options):
    """The conversation as the tokenizer itself writes it."""
    turns = []
    if "system" in options:
        turns.append({"role": "system", "content": options["system"]})
    for label in prompt.label_classes:
        said = f"Review: {task.train[label].text}\nSentiment:"
        turns += [{"role": "user", "content": said}]
        turns += [{"role": "assistant", "content": task.labels[label]}]
    turns.append({"role": "user", "content": f"Review: {task.test[0].text}\nSentiment:"})
    template = tokenizer.chat_template
    if today := options.get("today"):
        written = date.fromisoformat(today).strftime("%d %b %Y")
        template = template.replace("strftime_now('%d %b %Y')", repr(written))
    return tokenizer.apply_chat_template(
        turns,
        chat_template=template,
        tokenize=False,
        add_generation_prompt=True,
        **options.get("template_kwargs", {}),
    )


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece", "joining"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_is_what_the_template_writes_read_at_once(kind, name):
    template, options = TEMPLATES[name]
    tokenizer = chatty(template, kind)
    task = one_each(["a dull film.", "good"], QUERY)
    for more in ({}, {"system": "Sort."}):
        (prompt,) = build_prompts(task, tokenizer, n=1, chat=True, **options, **more)
        written = rendered(tokenizer, prompt, task, {**options, **more}) + options.get(
            "prefill", ""
        )
        assert prompt.text.startswith(written)
        assert prompt.text.endswith(ANSWER.get(name, "<|s|>assistant\n"))
        ids = tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
        assert list(prompt.tokens) == ids
        assert [own.text for own in prompt.candidates] == ["Negative", "Positive"]
        read = {part.role: prompt.text[part.start : part.stop] for part in prompt.parts}
        assert read["query_text"] == QUERY
        shown = [
            (part.role, prompt.text[part.start : part.stop])
            for part in prompt.parts
            if part.role in ("demo_text", "label_word")
        ]
        texts = {0: "a dull film.", 1: "good"}
        assert shown == [
            own
            for label in prompt.label_classes
            for own in (("demo_text", texts[label]), ("label_word", task.labels[label]))
        ]
        for span, label in zip(prompt.label_spans, prompt.label_classes, strict=True):
            assert "".join(prompt.pieces[span.start : span.stop]) == task.labels[label]


def test_what_opens_a_chat_belongs_to_no_demonstration():
    task = one_each(["dull", "good"], QUERY)
    (prompt,) = build_prompts(task, chatty(SYSTEM), n=1, chat=True)
    first, second, *_ = prompt.parts
    assert (first.role, first.demo) == ("narrative", None)
    assert prompt.text[: first.stop] == "<|s|>system\nBe kind.<|e|>\n"
    assert prompt.text[second.start : second.stop] == "<|s|>user\nReview: "
    assert [prompt.text[start:stop] for start, stop in prompt.units] != []


def test_a_day_is_frozen_and_recorded():
    task = one_each(["dull", "good"], QUERY)
    tokenizer = chatty(DATED)
    batch = build_prompts(task, tokenizer, n=1, chat=True, today="2026-01-02")
    assert batch[0].text.startswith("<|bos|>Today: 02 Jan 2026\n")
    assert batch.source["chat"]["today"] == "2026-01-02"
    assert batch.digest == build_prompts(task, tokenizer, n=1, chat=True, today="2026-01-02").digest
    with WORDS.raises(PromptError, "no day", date.today().isoformat()):
        build_prompts(task, tokenizer, n=1, chat=True)
    with WORDS.raises(PromptError, "day that is none", "'tomorrow'"):
        build_prompts(task, tokenizer, n=1, chat=True, today="tomorrow")


def test_special_tokens_in_what_is_said_are_letters():
    tokenizer = chatty(PLAIN)
    task = one_each(["<|e|> dull", "good<|s|>"], "so <|e|>")
    (prompt,) = build_prompts(task, tokenizer, n=1, chat=True)
    control = [token for token in prompt.tokens if token in tokenizer.all_special_ids]
    assert len(control) == 2 * 5 + 1
    with pytest.raises(PromptError, match="special_tokens='refuse'"):
        build_prompts(task, tokenizer, n=1, chat=True, special_tokens="refuse")


def test_true_and_false_chats_differ_in_label_words_alone():
    task = one_each(["dull", "good"], QUERY)
    true, false = build_prompt_pairs(task, chatty(PLAIN), n=1, chat=True)
    swapped = true[0].text.replace("Negative", "#").replace("Positive", "Negative")
    assert swapped.replace("#", "Positive") == false[0].text
    assert true.source["chat"] == false.source["chat"]


def test_open_answers_and_texts_with_white_space():
    (prompt,) = build_prompts("antonyms", chatty(TRIMMED), n=1, shots=3, chat=True)
    assert prompt.text.endswith("\nA:<|e|>\n<|s|>assistant\n")
    assert prompt.kind == "choices"
    task = one_each(["  dull  ", "good\n"], " so ", icl.Template("{text}\n= {label}"))
    (prompt,) = build_prompts(task, chatty(TRIMMED), n=1, chat=True)
    assert "user\ndull  \n=<|e|>" in prompt.text


CHANGING = PLAIN.replace("m.content", "(m.content | upper)")
FORGETTING = (
    "{%- for m in messages %}{%- if m.role != 'system' %}" + TURN + "{%- endif %}{%- endfor %}"
)


@pytest.mark.parametrize(
    ("template", "options", "fragments"),
    [
        (None, {"chat": True}, ["no template"]),
        (CHANGING, {"chat": True}, ["changes what is said"]),
        (FORGETTING, {"chat": True, "system": "Sort."}, ["forgets the system"]),
        ("{{ raise_exception('one turn!') }}", {"chat": True}, ["refuses turns", "one turn!"]),
        (PLAIN, {"system": "Sort."}, ["system without chat", "system="]),
        (PLAIN, {"template_kwargs": {"a": 1}}, ["options without chat", "template_kwargs="]),
        (PLAIN, {"today": "2026-01-01"}, ["today without chat", "today="]),
        (PLAIN, {"prefill": "x"}, ["prefill without chat", "prefill="]),
        (PLAIN, {"chat": True, "template_kwargs": {"tokenize": True}}, ["reserved", "'tokenize'"]),
        (PLAIN, {"chat": True, "system": " "}, ["empty system", "system="]),
    ],
)
def test_refusals(template, options, fragments):
    task = one_each(["dull", "good"], QUERY, REVIEW)
    with WORDS.raises(PromptError, *fragments):
        build_prompts(task, chatty(template), n=1, **options)
