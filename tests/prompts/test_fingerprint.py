"""Prompts of another tokenizer are refused, whatever their ids."""

import copy
import json

import pytest
from tokenizers import models, normalizers, pre_tokenizers

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch, build_prompts, chat_template, prompts_from_text
from icl_mech.prompts.identity import tokenizer_identity
from tests.prompts.cases import SENTIMENTS, toy_task
from tests.said import Words
from tests.tiny import tiny_model, tiny_tokenizer

WORDS = Words(__file__)

TASK = toy_task()
TEXT = "Review: a\nSentiment: Positive\nReview: b\nSentiment:"


def changed(kind="bpe", **parts):
    tokenizer = copy.deepcopy(tiny_tokenizer(kind))
    for name, part in parts.items():
        setattr(tokenizer.backend_tokenizer, name, part)
    return tokenizer


def fingerprint(tokenizer):
    return tokenizer_identity(tokenizer)["fingerprint"]


def test_a_fingerprint_tells_tokenizers_apart():
    plain = tiny_tokenizer("bpe")
    more = changed()
    more.add_tokens(["Positively"])
    others = [
        plain,
        tiny_tokenizer("sentencepiece"),
        changed(normalizer=normalizers.NFKC()),
        changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
        more,
    ]
    assert len({fingerprint(tokenizer) for tokenizer in others}) == len(others)


def test_models_of_one_kind_are_told_apart():
    written = json.loads(tiny_tokenizer("bpe").backend_tokenizer.to_str())["model"]
    vocabulary, merges = written["vocab"], [tuple(merge) for merge in written["merges"]]
    one, other = list(vocabulary)[-2:]
    swapped = {**vocabulary, one: vocabulary[other], other: vocabulary[one]}
    backends = [
        models.BPE(vocabulary, merges),
        models.BPE(swapped, merges),
        models.BPE(vocabulary, merges[::-1]),
        models.BPE(vocabulary, merges, ignore_merges=True),
        models.BPE(vocabulary, merges, byte_fallback=True),
    ]
    found = {fingerprint(changed(model=backend)) for backend in backends}
    assert len(found) == len(backends)
    assert fingerprint(tiny_tokenizer("bpe")) in found


class Slow:
    """A tokenizer without a backend."""

    def __init__(self, *tokens):
        self.vocabulary = {token: number for number, token in enumerate(tokens)}

    def __len__(self):
        return len(self.vocabulary)

    def get_vocab(self):
        return self.vocabulary


def test_tokenizers_without_a_backend_are_told_apart():
    assert fingerprint(Slow("a", "b")) == fingerprint(Slow("a", "b"))
    assert fingerprint(Slow("a", "b")) != fingerprint(Slow("b", "a"))


def test_what_changes_no_text_changes_no_fingerprint():
    plain = tiny_tokenizer("bpe")
    other = changed()
    other.padding_side = "left"
    other.bos_token = other.eos_token
    other("a b", truncation=True, max_length=1)
    assert fingerprint(other) == fingerprint(plain)
    padded = changed("sentencepiece")
    padded.add_special_tokens({"pad_token": "<PAD>"})
    bare = changed("sentencepiece")
    bare.pad_token = "<pad>"
    assert tokenizer_identity(object()) is None
    assert fingerprint(bare) == fingerprint(tiny_tokenizer("sentencepiece"))


def test_an_added_token_is_seen_later():
    tokenizer = changed()
    before = fingerprint(tokenizer)
    tokenizer.add_tokens(["Positively"])
    assert fingerprint(tokenizer) != before


def test_every_way_to_prompts_records_it():
    for tokenizer in (tiny_tokenizer("bpe"), tiny_tokenizer("sentencepiece")):
        own = tokenizer_identity(tokenizer)
        assert own["name"] == tokenizer.name_or_path
        assert build_prompts(TASK, tokenizer, n=2).source["tokenizer"] == own
        assert prompts_from_text([TEXT], SENTIMENTS, tokenizer).source["tokenizer"] == own


def test_no_path_of_the_machine_is_recorded(tmp_path):
    tokenizer = changed()
    tokenizer.name_or_path = str(tmp_path)
    assert tokenizer_identity(tokenizer)["name"] == tmp_path.name


def test_a_model_refuses_prompts_of_another_tokenizer():
    model = tiny_model("gpt2")
    other = changed(normalizer=normalizers.Lowercase())
    other.name_or_path = "tiny-lower"
    prompts = build_prompts(TASK, other, n=2)
    assert max(max(p.tokens) for p in prompts) < model.cfg.d_vocab
    with pytest.raises(PromptError) as caught:
        icl.predict(model, prompts[:1])
    for fragment in (
        "'tiny-lower'",
        "'tiny-bpe'",
        fingerprint(other),
        "build_prompts(task, model)",
    ):
        assert fragment in str(caught.value)


def test_what_is_not_refused():
    model = tiny_model("gpt2")
    for tokenizer in (model, model.tokenizer, tiny_tokenizer("bpe"), changed()):
        icl.predict(model, build_prompts(TASK, tokenizer, n=2))
    bare = Prompt.from_positions(
        [1, 2, 3, 4], label_positions=[1], label_classes=[0], label_tokens=[2, 5]
    )
    icl.predict(model, PromptBatch((bare,)))
    older = build_prompts(TASK, tiny_tokenizer("bpe"), n=2)
    older.source.pop("tokenizer")
    icl.predict(model, older)


CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<s>[INST] ' + m['content'] + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'] + ' </s>' }}"
    "{% else %}{{ raise_exception('no system here') }}{% endif %}{% endfor %}"
)
THINKING = CHATML.replace(
    "+ m['content']",
    "+ ('<think></think>' if loop.last and m['role'] == 'assistant' else '') + m['content']",
)


def chatting(template, kind="bpe"):
    tokenizer = changed(kind)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = template
    return tokenizer


def as_chat(tokenizer, prompt, task, system=None):
    """The same prompt as the tokenizer's own chat template writes it."""
    opening = [{"role": "system", "content": system}] if system else []
    texts = [
        "".join(prompt.pieces[s.start : s.stop]).strip() for s in prompt.spans if "text" in s.role
    ]
    turns = [{"role": "user", "content": f"Review: {text}"} for text in texts]
    answers = [
        {"role": "assistant", "content": f"Sentiment: {task.labels[c]}"}
        for c in prompt.label_classes
    ]
    said = [turn for pair in zip(turns, answers, strict=False) for turn in pair]
    text = tokenizer.apply_chat_template(
        [*opening, *said, turns[-1]], tokenize=False, add_generation_prompt=True
    )
    return tokenizer(
        f"{text}{'' if text.endswith(chr(10)) else ' '}Sentiment:", add_special_tokens=False
    )["input_ids"]


@pytest.mark.parametrize("system", [None, "Be brief. {x}"])
@pytest.mark.parametrize("template", [CHATML, THINKING])
def test_a_chat_is_what_the_tokenizer_writes(template, system):
    tokenizer = chatting(template)
    layout = chat_template(tokenizer, "Review: {text}", "Sentiment: {label}", system=system)
    task = toy_task(template=layout)
    for prompt in build_prompts(task, tokenizer, n=3, shots=2):
        assert list(prompt.tokens) == as_chat(tokenizer, prompt, task, system)
        assert prompt.exact
        assert [prompt.pieces[p].strip() for p in prompt.label_positions] == [
            task.labels[c] for c in prompt.label_classes
        ]
        assert prompt.pieces[prompt.target] == ":"


def test_a_chat_that_writes_bos_in_every_turn():
    tokenizer = chatting(INST, "sentencepiece")
    task = toy_task(template=chat_template(tokenizer, "Review: {text}", "Sentiment: {label}"))
    (prompt,) = build_prompts(task, tokenizer, n=1)
    assert list(prompt.tokens) == as_chat(tokenizer, prompt, task)
    assert prompt.tokens.count(tokenizer.bos_token_id) == 3
    assert [s.role for s in prompt.spans].count("bos") == 1
    with WORDS.raises(PromptError, "chat_writes_bos_every"):
        chat_template(tokenizer, system="Be brief.")


def test_pairs_and_braces_in_a_chat():
    tokenizer = chatting(CHATML)
    layout = chat_template(tokenizer, "{text} {{so}} {text2}?", "So: {label}")
    assert layout.is_pair
    assert "{{so}}" in layout.pattern


@pytest.mark.parametrize(
    ("template", "fragment"),
    [
        (None, "chat template"),
        (CHATML.replace("m['content']", "(m['content'] | upper)"), "changes what said"),
        (CHATML.replace("'\n' +", "loop.index ~ '\n' +"), "write every turn"),
        (CHATML.replace("m['content']", "m['content'] ~ '.' * (messages | length > 4)"), "alike"),
        ("{{ messages[0].content }}", "write every turn"),
        ("{{ messages.none() }}", "refuses turns"),
    ],
)
def test_chat_templates_that_are_none_of_demonstrations(template, fragment):
    with WORDS.raises(PromptError, fragment):
        chat_template(chatting(template))
