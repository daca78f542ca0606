"""The answer after each sentence: by hand, against plain Hugging Face, and where it is known."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.measurements import RationaleAnswers
from icl_mech.measurements.rationales.rationale_answers import LEAST, RationaleAnswersResult, enough
from icl_mech.metrics import mean_interval, wilson_interval
from icl_mech.planted import rationale_model, rationale_task
from icl_mech.prompts import rationale_prefix
from tests.measurements.rationales.cases import ASKED, FAMILIES, SHOWN, log_probs, setting, text_of
from tests.said import Words

WORDS = Words(__file__)
QUIET = {"progress": False}


def planted(kind, n=24, **options):
    model = rationale_model(kind)
    how = {"shots": 1, "n": n, "demonstrations": "per_prompt", **options}
    return model, icl.build_prompts(rationale_task(), model, **how)


def made(log_prob, right=None, lengths=None):
    log_prob = torch.tensor(log_prob, dtype=torch.float64)
    count, most = log_prob.shape
    return RationaleAnswersResult(
        log_prob=log_prob,
        right=torch.where(log_prob.isnan(), torch.nan, (log_prob > -1).double())
        if right is None
        else torch.tensor(right, dtype=torch.float64),
        lengths=torch.tensor([most - 1] * count if lengths is None else lengths),
        answers=torch.zeros(count, dtype=torch.long),
        labels=("a", "b"),
        provenance={"prompts": {"count": count}},
    )


def test_by_hand():
    nan = torch.nan
    found = made([[-2.0, -1.5, -0.5], [-1.0, -3.0, nan], [-2.0, -2.0, -1.0]], lengths=[2, 1, 2])
    assert found.added.value == pytest.approx((1.5 - 2.0 + 1.0) / 3)
    assert found.numbers == (1, 2)
    assert found.sel("log_prob").values.tolist() == pytest.approx([-5 / 3, -6.5 / 3, -0.75])
    assert found.sel("step").values.tolist() == pytest.approx([-0.5, 1.0])
    assert found.interval("step", sentence=2).value == pytest.approx(1.0)
    assert found.accuracy_added.value == pytest.approx(1 / 3)
    whole = made([[-2.0, -1.5]] * 6)
    assert whole.turns == ((1,), ())
    assert made([[-1.5, -2.0]] * 6).turns == ((), (1,))
    # Less than a tenth of what is lost without a rationale is no claim, and no contradiction.
    count = 12
    for last, status in ((-1.5, "supported"), (-1.85, "not shown"), (-2.5, "opposite")):
        spread = [0.01 * number for number in range(count)]
        assert made([[-2.0 + own, last + own] for own in spread]).status == status


def test_turns_are_tested_on_enough_prompts():
    """Sentences that six prompts have, on these prompts."""
    nan = torch.nan
    assert made([[-2.0, -1.5]] * 5).turns == ((), ())
    assert made([[-2.0, -1.5]] * 5).tested == 0
    long, short, shorter = [-2.0, -1.0, -1.5, 0.0], [-2.0, -1.0, -1.5, nan], [-2.0, -2.5, nan, nan]
    mixed = made([long] * 2 + [short] * 4 + [shorter] * 9, lengths=[3] * 2 + [2] * 4 + [1] * 9)
    assert mixed.tested == 2
    assert mixed.turns == ((1,), (2,))
    WORDS(mixed.figures()[0].answer, "tested", 2, 6)
    assert made([long] * 6).tested == 3
    few = made([[-2.0, -1.5]] * 5)
    assert "sentence" not in few.figures()[0].answer


def test_turns_up_and_down_share_the_error():
    """Of 200 sets of steps without any effect about one in 20 has a turn, up or down."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(200, 16, 4, generator=generator, dtype=torch.float64)
    some = [bool(sum(map(len, made(one.tolist()).turns))) for one in noise]
    assert sum(some) <= 18


def test_intervals_by_column_are_those_of_their_kind():
    """Wilson for right and wrong answers, also where rationales differ in length."""
    nan, count = torch.nan, 12
    rows = [[-2.0, -0.5 - 0.01 * n, -0.4 if n < 8 else nan] for n in range(count)]
    lengths = [2 if n < 8 else 1 for n in range(count)]
    ours = made(rows, lengths=lengths).sel("accuracy")
    for place, (right, of) in enumerate(((0, 12), (12, 12), (8, 8))):
        outcomes = torch.arange(of) < right
        wanted = wilson_interval(outcomes)
        ends = [float(side[place]) for side in (ours.values, ours.low, ours.high)]
        assert ends == pytest.approx(wanted)
    nats = made(rows, lengths=lengths).sel("log_prob")
    wanted = mean_interval(torch.tensor([row[1] for row in rows], dtype=torch.float64))
    assert [float(side[1]) for side in (nats.values, nats.low, nats.high)] == pytest.approx(wanted)
    alone = [[-2.0, -0.5, -0.4 if n == 0 else nan] for n in range(count)]
    lonely = made(alone, lengths=[2] + [1] * 11)
    for name in ("accuracy", "log_prob"):
        few = lonely.sel(name)
        assert torch.tensor([few.low[2], few.high[2]]).isnan().all()
        assert not torch.tensor([few.low[1], few.high[1]]).isnan().any()


def test_opposite_needs_a_gain_clearly_below_zero():
    """The gain minus a tenth of the loss varies less than the gain where the two go together."""
    bare = torch.linspace(-6.0, -0.5, 12, dtype=torch.float64)
    noise = 0.02 * (torch.arange(12) % 2 - 0.5)
    gain = -0.1 * (bare - bare.mean()) - 0.05 + noise
    assert mean_interval(gain).high > 0
    limit = mean_interval(gain + LEAST * bare)
    assert limit.high < LEAST * float(bare.mean())
    assert enough(gain, bare).status == "not shown"
    assert enough(gain - 1, bare).status == "opposite"
    assert enough(gain + 1, bare).status == "supported"


def test_choices_have_no_single_chance_level():
    found = replace(made([[-2.0, -1.5]] * 3), labels=())
    assert found.chance is None
    assert made([[-2.0, -1.5]] * 3).chance == 0.5


@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_is_that_of_plain_hugging_face(family):
    model, prompts = setting(family)
    found = icl.rationale_answers(model, prompts, **QUIET)
    assert found.log_prob.shape == (4, 3)
    for number, query in enumerate(ASKED):
        first, _, second = query.rationale.partition(". ")
        for count, rationale in enumerate((None, f"{first}.", f"{first}. {second}")):
            text = text_of(SHOWN, query.text, rationale)
            wanted = log_probs(family, text, hidden=True)[:, query.label]
            assert_close(found.lens_log_prob[number, count], wanted, atol=1e-5, rtol=1e-5)
            assert_close(found.log_prob[number, count], wanted[-1], atol=1e-5, rtol=1e-5)
    assert float(found.steps.abs().min()) > 1e-4


def test_the_last_entry_of_the_lens_is_the_answer_and_prefixes_are_prompts():
    model, prompts = setting("gpt2")
    found = icl.rationale_answers(model, prompts, **QUIET)
    assert_close(found.lens_log_prob[..., -1], found.log_prob, atol=1e-5, rtol=1e-5)
    for count in range(3):
        run = icl.predict(model, rationale_prefix(prompts, model, count), **QUIET)
        among = run.label_logits.double().log_softmax(-1).gather(1, prompts.answers[:, None])[:, 0]
        assert_close(found.log_prob[:, count], among, atol=1e-5, rtol=1e-5)
    without = icl.rationale_answers(model, prompts, lens=False, **QUIET)
    assert without.lens_log_prob is None
    assert_close(without.log_prob, found.log_prob, atol=1e-6, rtol=0)
    assert without.on_page() == ("prefixes",)


@pytest.mark.parametrize(
    ("kind", "helps"), [("carries", True), ("switch", True), ("decorative", False)]
)
def test_the_sentence_that_carries_the_answer_is_the_second(kind, helps):
    found = icl.rationale_answers(*planted(kind), **QUIET)
    assert found.status == ("supported" if helps else "not shown")
    assert found.turns == (((2,), ()) if helps else ((), ()))
    right = found.sel("accuracy").values
    assert right[-1] == 1
    assert (right[:2] < 0.7).all() == helps
    # Written by the neurons of block 3, so the lens reads it from entry 4 on.
    by_layer = found.sel("lens_log_prob").values
    assert (by_layer[2, 4:] > -0.1).all()
    assert (by_layer[:, :4] < -1).all()


def test_rationales_of_different_lengths_are_averaged_where_they_go_on():
    model, prompts = setting("gpt2")
    texts = ["Yes.", "It is so. Yes. It is good.", "Yes. So.", ""]
    mixed = icl.prompts.with_rationales(prompts, model, texts)[[0, 1, 2]]
    found = icl.rationale_answers(model, mixed, **QUIET)
    assert found.lengths.tolist() == [1, 3, 2]
    assert found.log_prob.isnan().sum(1).tolist() == [2, 0, 1]
    alone = icl.rationale_answers(model, mixed[[1]], **QUIET)
    assert_close(found.log_prob[1], alone.log_prob[0], atol=1e-5, rtol=0)
    assert found.interval("log_prob", prefix=3).value == pytest.approx(float(found.log_prob[1, 3]))


def test_prompts_without_rationales_are_refused():
    model = setting("gpt2")[0]
    plain = icl.build_prompts("reviews", model, n=2)
    with WORDS.raises(PromptError, "no_rationale", 0):
        icl.rationale_answers(model, plain, **QUIET)
    bare = icl.prompts.with_rationales(setting("gpt2")[1], model, ["Yes.", "", "No.", "So."])
    with WORDS.raises(PromptError, "no_rationale_at_one_query", 1):
        icl.rationale_answers(model, bare, **QUIET)


def test_without_demonstrations_rationales_are_read_too():
    model, prompts = planted("carries", 6, shots=0)
    found = icl.rationale_answers(model, prompts, **QUIET)
    assert found.log_prob[:, 0].max() < -1
    assert found.log_prob[:, 2].min() > -0.1


def test_it_is_saved_swept_and_said(tmp_path):
    model, prompts = planted("carries", 8)
    report = icl.measure(model, prompts, RationaleAnswers(), out=tmp_path / "run", **QUIET)
    found = report["rationale_answers"]
    loaded = icl.load(tmp_path / "run")["rationale_answers"]
    assert torch.equal(loaded.log_prob, found.log_prob)
    assert loaded.status == found.status == "supported"
    WORDS.starts(found.summary(), "summary")
    for show in found.shows:
        assert found.plot(show).data
    swept = icl.sweep(model, rationale_task(), n=6, seeds=[0, 1], measurements=[RationaleAnswers()], out=tmp_path / "sweep", **QUIET)  # fmt: skip
    assert len(swept.items) == 2
