"""Open answers against plain loops over the model, and what results say of them."""

import math
from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.measurements import Ablation, CompareCompression, EarlyExit
from icl_mech.measurements.whole_answers import WordScores, best_of
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Result
from icl_mech.tasks import Example, Task, Template
from tests.engine.cases import ragged
from tests.tiny import tiny_model

FAMILIES = ("gpt2", "neox", "llama")
WORDS = [
    "World",
    "Sports",
    "Business",
    "Technology",
    "Article",
    "Question",
    "Topic",
    "Type",
    "Location",
    "Person",
    "Number",
]
CLOSE = {"rtol": 0, "atol": 1e-5}


def made():
    """Answers of one or two tokens; every second query has two that are right."""
    examples = []
    for number, word in enumerate(WORDS):
        long, short = f"{word} good", word
        answers = (short, f"{WORDS[number - 1]} bad") if number % 4 == 1 else (long,)
        other = WORDS[(number + 3) % len(WORDS)]
        examples.append(Example(f"movie {number}", answers=answers, other=other))
    train, test = tuple(examples[::2]), tuple(examples[1::2])
    return Task("made", Template("Input: {text}\nOutput: {label}"), (), train, test)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def built(model, **options):
    options = {"shots": 2, "n": 3, "demonstrations": "per_prompt", **options}
    return icl.build_prompts(made(), model, **options)


@torch.no_grad()
def plain(model, tokens):
    return model(torch.tensor([list(tokens)]))[0]


def expected(model, prompt):
    """Log-probability, rank and greedy match of the accepted answers, token by token."""
    totals, ranks, matches = [], [], []
    for word in prompt.accepted or [prompt.tokens[prompt.target + 1 :]]:
        before, total, said = list(prompt.tokens[: prompt.target + 1]), 0.0, []
        for place, token in enumerate(word):
            logits = plain(model, before)[-1]
            total += float(logits.log_softmax(-1)[token])
            said.append(int(logits.argmax()) == token)
            if not place:
                ranks.append(int((logits > logits[token]).sum()))
            before.append(token)
        totals.append(total)
        matches.append(all(said))
    return math.log(sum(map(math.exp, totals))), min(ranks), any(matches)


def check_answers(model, prompts, found):
    log_probs, ranks, matches = zip(*(expected(model, own) for own in prompts), strict=True)
    torch.testing.assert_close(found.answer_log_prob, torch.tensor(log_probs), rtol=1e-6, atol=2e-5)
    assert found.answer_rank.tolist() == list(ranks)
    assert found.exact_match.tolist() == list(matches)


def test_whole_answers_are_those_of_a_plain_loop(model):
    prompts = built(model)
    assert {len(prompt.accepted) for prompt in prompts} == {1, 2}
    assert {len(word) for prompt in prompts for word in prompt.accepted} == {1, 2}
    check_answers(model, prompts, icl.predict(model, prompts))


def test_an_answer_the_model_says_itself_matches(gpt2):
    """Of random models no answer is; so it is made the accepted one."""
    prompts = built(gpt2)
    said = []
    for prompt in prompts:
        tokens = list(prompt.tokens)
        for _ in range(3):
            tokens.append(int(plain(gpt2, tokens)[-1].argmax()))
        said.append(replace(prompt, accepted=(*prompt.accepted, tuple(tokens[-3:]))))
    own = PromptBatch((said[0], *prompts[1:]), prompts.source)
    found = icl.predict(gpt2, own)
    check_answers(gpt2, own, found)
    assert found.exact_match.tolist()[0]
    assert found.answer_rank.tolist()[0] == 0


def test_texts_that_go_on_are_scored_by_what_follows(gpt2):
    ids = torch.randint(5, 300, (3, 14), generator=torch.Generator().manual_seed(2)).tolist()
    spans = [(1, 5), (5, 9)]
    goes_on = PromptBatch(tuple(Prompt.from_spans(own, spans, target=10) for own in ids))
    check_answers(gpt2, goes_on, icl.predict(gpt2, goes_on))
    ends = icl.predict(gpt2, PromptBatch(tuple(Prompt.from_spans(own, spans) for own in ids)))
    assert ends.answer_log_prob is None is ends.answer_rank is ends.exact_match


def test_classes_have_no_whole_answers(gpt2):
    found = icl.predict(gpt2, ragged())
    assert found.answer_log_prob is None
    assert [*found.quantities()] == ["accuracy", "label_logit", "log_prob"]


@pytest.mark.parametrize("score", ["sum", "mean"])
def test_choices_are_scored_by_their_own_words(model, score):
    """Not by those of the first prompt."""
    prompts = built(model)
    rows = []
    for prompt in prompts:
        row = []
        for word in prompt.label_words:
            logits = plain(model, (*prompt.tokens, *word[:-1])).log_softmax(-1)
            total = sum(float(logits[prompt.target + i, t]) for i, t in enumerate(word))
            row.append(total / (len(word) if score == "mean" else 1))
        rows.append(row)
    found = icl.predict(model, prompts, score=score)
    torch.testing.assert_close(found.log_probs, torch.tensor(rows), rtol=1e-6, atol=2e-5)
    assert found.predicted.tolist() == torch.tensor(rows).argmax(-1).tolist()


def test_whole_prompts_and_saved_results_give_the_same(gpt2, tmp_path):
    for how in ("shared", "per_prompt"):
        prompts = built(gpt2, demonstrations=how)
        fast, whole = (icl.predict(gpt2, prompts, path=path) for path in ("auto", "whole"))
        torch.testing.assert_close(fast.answer_log_prob, whole.answer_log_prob, **CLOSE)
        torch.testing.assert_close(fast.label_logits, whole.label_logits, **CLOSE)
        assert fast.answer_rank.tolist() == whole.answer_rank.tolist()
    fast.save(tmp_path / "one")
    loaded = Result.load(tmp_path / "one")
    assert torch.equal(loaded.answer_log_prob, fast.answer_log_prob)
    assert loaded.figures()[0].answer == fast.figures()[0].answer


def test_the_lens_reads_each_prompts_own_choices(model):
    prompts = built(model)
    found = icl.logit_lens(model, prompts)
    for row, prompt in enumerate(prompts):
        logits = plain(model, prompt.tokens)[prompt.target]
        own = logits[list(prompt.label_tokens)]
        torch.testing.assert_close(found.label_logits[row, -1], own, **CLOSE)


def test_indirect_effects_are_those_of_plain_hooks(model):
    """The mean output of a head of the true prompts, put into the permuted ones, at the target."""
    true, false = icl.build_prompt_pairs(
        made(), model, shots=2, n=3, false_labels="permuted", demonstrations="per_prompt"
    )
    found = icl.head_mediation(model, true, false)
    with torch.no_grad():
        for layer in range(model.cfg.n_layers):
            name = f"blocks.{layer}.attn.hook_z"
            rows = []
            for prompt in true:
                _, cache = model.run_with_cache(torch.tensor([list(prompt.tokens)]))
                rows.append(cache[name][0, prompt.target])
            mean = torch.stack(rows).mean(0)
            for row, prompt in enumerate(false):
                tokens = torch.tensor([list(prompt.tokens)])
                before = model(tokens)[0, prompt.target].softmax(-1)[prompt.label_tokens[0]]
                for head in range(model.cfg.n_heads):

                    def put(z, hook, head=head, prompt=prompt, mean=mean):
                        z = z.clone()
                        z[:, prompt.target, head] = mean[head]
                        return z

                    after = model.run_with_hooks(tokens, fwd_hooks=[(name, put)])
                    after = after[0, prompt.target].softmax(-1)[prompt.label_tokens[0]]
                    gap = after - before - found.probability[row, layer, head]
                    assert abs(float(gap)) <= 1e-5


def test_accuracies_of_choices_have_no_thresholds(gpt2):
    pair = icl.build_prompt_pairs(
        made(), gpt2, shots=2, n=4, false_labels="other", demonstrations="per_prompt"
    )
    right = [(icl.predict(gpt2, side).predicted == side.answers).double() for side in pair]
    for result in (
        icl.layer_accuracy(gpt2, *pair),
        Ablation(start=1)(gpt2, *pair),
        EarlyExit()(gpt2, *pair),
    ):
        assert result.own_choices
        text = " ".join(f"{own.answer} {own.caption} {own.limits}" for own in result.figures())
        assert "calibrated" not in text.casefold()
        assert "threshold" not in text
        assert "constant answer" not in text
        assert not any("calibrated" in own.unit for own in result.quantities().values())
        if hasattr(result, "reachable"):
            table = result.quantities().get("calibrated", result.quantities().get("accuracy"))
            last = table.per_prompt[..., -1] if "layer" in table.dims else table.per_prompt[:, 0]
            torch.testing.assert_close(last.double(), torch.stack(right, 1))


def test_no_answer_is_constant_where_prompts_have_their_own(gpt2):
    prompts = built(gpt2, shots=3)
    isolated = icl.isolation(gpt2, prompts, depths=(1,))
    assert [word for _, word in isolated.drawing().levels] == ["chance 0.25"]
    told = CompareCompression()(gpt2, prompts)
    assert math.isnan(told.constant_loyalty)
    for result in (isolated, told, icl.predict(gpt2, prompts)):
        text = " ".join(f"{own.answer} {own.caption} {own.limits}" for own in result.figures())
        assert "constant" not in f"{text} {result.summary()}"
        assert "always" not in text
        result.drawing()


def test_an_answer_that_another_one_begins_adds_nothing():
    read = [
        WordScores(torch.tensor([math.log(own)]), torch.tensor([False]), torch.tensor([1]))
        for own in (0.5, 0.25, 0.125)
    ]
    (prompt,) = built(tiny_model("gpt2"), n=1)
    batch = PromptBatch((replace(prompt, accepted=((5,), (5, 6), (7,))),))
    assert best_of(read, batch).log_prob.exp().item() == pytest.approx(0.5 + 0.125)


def test_leaving_early_goes_by_the_scores_of_the_layers(gpt2):
    how = {"shots": 2, "n": 4, "demonstrations": "per_prompt"}
    pair = icl.build_prompt_pairs(made(), gpt2, **how)
    scores = icl.layer_accuracy(gpt2, *pair)
    # Probabilities so small that only their logits tell them apart.
    sharp = replace(
        scores, true_probs=scores.true_probs * 0 + 1 / 3, false_probs=scores.false_probs * 0 + 1 / 3
    )
    assert (
        icl.early_exit(sharp)
        .changes.nan_to_num()
        .equal(icl.early_exit(scores).changes.nan_to_num())
    )


@pytest.mark.parametrize("per", ["layer", "head", "mlp"])
@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
def test_every_prompt_is_read_at_its_own_choices(per, demonstrations, gpt2):
    prompts = built(gpt2, n=4, demonstrations=demonstrations)
    found = icl.logit_lens(gpt2, prompts, per=per).label_logits
    for number, prompt in enumerate(prompts):
        alone = icl.logit_lens(gpt2, PromptBatch((prompt,), prompts.source), per=per).label_logits
        torch.testing.assert_close(found[number], alone[0], **CLOSE)
