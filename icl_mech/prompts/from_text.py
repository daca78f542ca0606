"""Prompts from raw text: label words are located once, by characters."""

import hashlib
import re
from collections.abc import Sequence

from icl_mech.checking import conformed
from icl_mech.errors import PromptError, TaskError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import finished, listed, tokenizer_and_limit
from icl_mech.prompts.encoding import SpecialTokens, TextTokenizer
from icl_mech.prompts.laying import Asked, RolePiece, assemble
from icl_mech.prompts.spans import Prompt, WordScore
from icl_mech.tasks.types import is_index, label_names, text_fault


def prompts_from_text(
    texts: Sequence[str],
    label_words: Sequence[str],
    model: object,
    answers: Sequence[int | str] | None = None,
    *,
    before: str | None = None,
    between: str | None = None,
    bos: bool | None = None,
    special_tokens: SpecialTokens = "refuse",
    score: WordScore | None = None,
) -> PromptBatch:
    r"""Prompts from finished texts, e.g. `"Review: ...\nSentiment: Positive\n...Sentiment:"`.

    Every occurrence of a label word (with `between` before it and no letter after it) is a
    demonstration's label; text between labels has the role `demo_text`, text after the last one
    `query_text`, and the last token is the target.

    Args:
        texts: Prompts that end where `between` and the answer would follow.
        label_words: Label words in class order.
        model: Model or tokenizer.
        answers: True class of each query, as index or label word.
        before: Only occurrences right after this text count, e.g. `"Sentiment:"` - needed
            when label words also occur inside the texts.
        between: Text before a label word, in the texts and between their end and the answer: `""`
            in `答案：正面` or `(A)`. None: a space, or nothing if label words begin with one.
        bos: As in `build_prompts`; a BOS token written in a text is not added twice.
        special_tokens: How `<|im_end|>` and the like in the texts are read: as the tokens (`control`),
            as in texts of `tokenizer.apply_chat_template`; as plain characters (`text`); or an error
            (`refuse`), since the text itself does not show which is meant.
        score: As in `build_prompts`.

    Raises:
        PromptError: empty text, trailing space, unknown answer, wrong number of answers, special
            tokens in a text.
    """
    texts = listed(texts, "prompt")
    tokenizer, limit = tokenizer_and_limit(model)
    labels = list(_labels(label_words))
    answers = _answers(answers, len(texts))
    breaks = isinstance(before, str) and bool(before.strip(" "))
    if before is not None and (fault := text_fault(before, blank=breaks)):
        raise PromptError(f"before= {fault}; give the text that precedes label words, or None.")
    conformed("special_tokens", special_tokens, SpecialTokens, PromptError)
    conformed("bos", bos, bool | None, PromptError)
    conformed("score", score, WordScore | None, PromptError)
    between = _between(between, labels)
    reader = TextTokenizer(tokenizer, special_tokens)
    pattern = _occurrences(labels, before, between)
    names = [label.strip() for label in labels]
    asked = Asked(labels, names, _after(pattern, texts), score=score)
    prompts = []
    for number, text in enumerate(texts):
        if between and text.endswith(between):
            raise PromptError(
                f"Text {number} ends with {between!r}, which is inserted between it and the "
                "answer; remove it, or give between=''."
            )
        matches = list(pattern.finditer(text))
        answer = None if answers is None else _class(answers[number], labels, number)
        prompts.append(
            assemble(
                reader,
                [*_split(text, matches), RolePiece("format", None, between)],
                asked,
                label_classes=[labels.index(match.group(1)) for match in matches],
                answer=answer,
                bos=bos,
            )
        )
    source = {
        "task": {"name": "text", "labels": labels},
        "n": len(texts),
        "before": before,
        **({} if between == " " else {"between": between}),
        **({} if special_tokens == "refuse" else {"special_tokens": special_tokens}),
        "bos": any(prompt.spans[0].role == "bos" for prompt in prompts),
    }
    return finished(prompts, source, tokenizer, limit)


def pairs_from_text(
    true: Sequence[str],
    false: Sequence[str],
    queries: Sequence[str],
    label_words: Sequence[str],
    model: object,
    answers: Sequence[int | str],
    false_answers: Sequence[int | str] | None = None,
    *,
    claims: str | None = None,
    bos: bool | None = None,
    special_tokens: SpecialTokens = "refuse",
    score: WordScore | None = None,
) -> tuple[PromptBatch, PromptBatch]:
    r"""(true, false) prompts with misleading context before the query, not in demonstrations.

    Examples are an insistent user or a wrong document: prompt `i` is `true[i] + queries[i]` or `false[i] + queries[i]`.
    The text before the query has the role `demo_text`. Accuracy by layer, early exit, lenses and
    ablations depend on answers only, and accept such pairs like those of `build_prompt_pairs`. Measurements based on
    displayed labels (prefix matching, label attending, flow) need `claims`; measurements based on single
    demonstrations of known classes (`context_accuracy`) reject them.

    Args:
        true: Correct text before each query, such as a document.
        false: The same text with false statements.
        queries: The queries, the same for both, ending where the answer would follow.
        label_words: Label words in class order, without leading space.
        model: Model or tokenizer.
        answers: True class of each query, as index or label word.
        false_answers: The class that the false text suggests; None: the class displayed by its last claim, or
            no class, so that permuted scores and prefix matching are rejected.
        claims: Text before displayed labels, such as `"I am sure it is"`: a label word right after it counts;
            None: no label word in these texts counts.
        bos: As in `build_prompts`.
        special_tokens: As in `prompts_from_text`.
        score: As in `build_prompts`.

    Raises:
        PromptError: lists of different lengths, equal texts, a query whose tokens differ between the two
            sides, different numbers of claims, or a false answer that equals the true one.
    """
    sides = [listed(texts, "prompt") for texts in (true, false)]
    asked = listed(queries, "prompt")
    for name, texts in zip(("true", "false"), sides, strict=True):
        if len(texts) != len(asked):
            raise PromptError(
                f"{len(asked)} queries but {len(texts)} {name} texts; give one for each."
            )
    if claims is not None and (fault := text_fault(claims)):
        raise PromptError(f"claims= {fault}; give the text that precedes label words, or None.")
    conformed("special_tokens", special_tokens, SpecialTokens, PromptError)
    conformed("bos", bos, bool | None, PromptError)
    tokenizer, limit = tokenizer_and_limit(model)
    labels = list(_labels(label_words))
    given = _answers(answers, len(asked))
    if given is None:
        raise PromptError("answers is None; a pair needs the true class of every query.")
    right = [_class(answer, labels, number) for number, answer in enumerate(given)]
    wrong = _answers(false_answers, len(asked))
    reader = TextTokenizer(tokenizer, special_tokens)
    between = _between(None, labels)
    pattern = None if claims is None else _occurrences(labels, claims, between)
    after = "\n" if pattern is None else _after(pattern, [*sides[0], *sides[1]])
    asked_for = Asked(labels, [label.strip() for label in labels], after, score=score)
    made: list[list[Prompt]] = [[], []]
    for number, query in enumerate(asked):
        if sides[0][number] == sides[1][number]:
            raise PromptError(
                f"The true and the false text {number} are the same; give two different texts."
            )
        for prompts, side in zip(made, sides, strict=True):
            text = side[number]
            for what, part in (("text", text), ("query", query)):
                if part != part.rstrip(" "):
                    raise PromptError(
                        f"The {what} {number} has a trailing space; remove it, since what follows "
                        "begins with its own."
                    )
            matches = [] if pattern is None else list(pattern.finditer(text))
            shown = [labels.index(match.group(1)) for match in matches]
            taught = None
            if prompts is made[1]:
                taught = shown[-1] if shown else None
                if wrong is not None:
                    taught = _class(wrong[number], labels, number)
                if taught == right[number]:
                    raise PromptError(
                        f"The false answer of query {number} is the true one, {labels[taught]!r}; "
                        "give another class."
                    )
            prompts.append(
                assemble(
                    reader,
                    [
                        *_before(text, matches),
                        RolePiece("query_text", None, query),
                        RolePiece("format", None, between),
                    ],
                    asked_for,
                    label_classes=shown,
                    answer=right[number],
                    false_answer=taught,
                    bos=bos,
                )
            )
        _check_alike(number, made[0][-1], made[1][-1])
    digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
    source = {
        "task": {"name": "text", "labels": labels},
        "n": len(asked),
        "claims": claims,
        **({} if special_tokens == "refuse" else {"special_tokens": special_tokens}),
        "query_texts": digest,
        "bos": any(prompt.spans[0].role == "bos" for prompt in made[0]),
    }
    settings = ({"labels": "correct"}, {"labels": "false text"})
    pair = [
        finished(prompts, {**source, **setting}, tokenizer, limit)
        for prompts, setting in zip(made, settings, strict=True)
    ]
    return pair[0], pair[1]


def _demonstrations(text: str, matches: Sequence[re.Match[str]]) -> tuple[list[RolePiece], str]:
    """Pieces up to the last label word, and the text after it."""
    pieces: list[RolePiece] = []
    end = 0
    for demo, match in enumerate(matches):
        if match.start(1) > end:
            pieces.append(RolePiece("demo_text", demo, text[end : match.start(1)]))
        pieces.append(RolePiece("label_word", demo, match.group(1)))
        end = match.end()
    return pieces, text[end:]


def _before(text: str, matches: Sequence[re.Match[str]]) -> list[RolePiece]:
    """Pieces before the query; text after the last claim belongs to that claim."""
    pieces, rest = _demonstrations(text, matches)
    more = [RolePiece("demo_text", max(len(matches) - 1, 0), rest)] if rest else []
    return [*pieces, *more]


def _check_alike(number: int, true: Prompt, false: Prompt) -> None:
    """Reject sides that differ in more than the text before the query.

    Raises:
        PromptError: names the difference.
    """
    behind = [
        [
            prompt.tokens[span.start : span.stop]
            for span in prompt.spans
            if span.role == "query_text"
        ]
        + [prompt.tokens[prompt.target :]]
        for prompt in (true, false)
    ]
    if behind[0] != behind[1]:
        raise PromptError(
            f"The query {number} has different tokens after the true and after the false text; "
            "let both texts end alike, for example with a line break."
        )
    counts = [len(prompt.label_classes) for prompt in (true, false)]
    if counts[0] != counts[1]:
        raise PromptError(
            f"The true text {number} makes {counts[0]} claims and the false one {counts[1]}; both "
            "need the same number, so that their label words align."
        )


def _occurrences(labels: Sequence[str], before: str | None, between: str) -> re.Pattern[str]:
    longest_first = sorted(labels, key=len, reverse=True)
    anchor = f"(?<={re.escape(before.rstrip(' '))})" if before else ""
    edge = re.escape(between) or ("" if before else r"(?<!\w)")
    return re.compile(rf"{anchor}{edge}({'|'.join(map(re.escape, longest_first))})(?!\w)")


def _between(between: object, labels: Sequence[str]) -> str:
    if between is None:
        return "" if any(label.startswith(" ") for label in labels) else " "
    if fault := text_fault(between, blank=True):
        raise PromptError(f"between= {fault}; give the text before a label word, or ''.")
    return str(between)


REST = 24
"""Characters after a label word that its last token may depend on."""


def _after(pattern: re.Pattern[str], texts: Sequence[str]) -> str:
    """Text after the first label word in the texts; a line break if there is none."""
    places = ((text, match.end()) for text in texts for match in pattern.finditer(text))
    return next((text[end : end + REST] for text, end in places if end < len(text)), "\n")


def _answers(answers: object, count: int) -> Sequence[int | str] | None:
    listed = getattr(answers, "tolist", lambda: answers)()
    if listed is None:
        return None
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise PromptError(f"answers={listed!r}; expected a list, one answer per text.")
    if len(listed) != count:
        raise PromptError(f"{count} texts but {len(listed)} answers; give one per text.")
    return listed


def _split(text: str, matches: Sequence[re.Match[str]]) -> list[RolePiece]:
    pieces, query = _demonstrations(text, matches)
    if not query:
        raise PromptError(
            "A text ends with a label word; it must end where the answer would follow."
        )
    return [*pieces, RolePiece("query_text", None, query)]


def _labels(label_words: object) -> tuple[str, ...]:
    try:
        return label_names(label_words, "label_words")
    except TaskError as error:
        raise PromptError(str(error)) from None


def _class(answer: int | str, labels: Sequence[str], number: int) -> int:
    if isinstance(answer, str):
        names = [label.strip() for label in labels]
        if answer.strip() not in names:
            raise PromptError(
                f"Answer {answer!r} of text {number} is not a label word: {', '.join(labels)}."
            )
        return names.index(answer.strip())
    if not is_index(answer):
        raise PromptError(
            f"Answer {answer!r} of text {number} is a {type(answer).__name__}; expected a label "
            f"word ({', '.join(labels)}) or its index."
        )
    return int(answer)
