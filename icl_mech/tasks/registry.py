"""Built-in tasks in the prompt formats of the papers, and the choice of a task's format.

*Label words*: Wang et al. 2023, *Label Words are Anchors*, appendix A.

*Overthinking*: Halawi et al. 2023, *Overthinking the Truth*. A demonstration ends with a full stop,
demonstrations are joined by an empty line, and a narrative may open the prompt. Names are those of the
paper's code, prefixed with `ot-` if the label-words task of the same name has a different format. Two
errors of that code are corrected: TREC's label words are in the order of the data's classes, and
the SST-2 format with swapped label words is marked.
"""

import warnings
from collections.abc import Iterable
from pathlib import Path

from icl_mech.errors import TaskError, near_matches
from icl_mech.tasks.known import CONVERTED, HubSource, KnownTask, PromptFormat
from icl_mech.tasks.types import Template, label_names

_REVIEW = PromptFormat(Template("Review: {text}\nSentiment: {label}"), ("Negative", "Positive"))
_ARTICLE = PromptFormat(
    Template("Article: {text}\nAnswer: {label}"), ("World", "Sports", "Business", "Technology")
)
_QUESTION = PromptFormat(
    Template("Question: {text}\nAnswer Type: {label}"),
    ("Abbreviation", "Entity", "Description", "Person", "Location", "Number"),
)
_DIALOGUE = PromptFormat(
    Template("Dialogue: {text}\nEmotion: {label}"), ("Others", "Happy", "Sad", "Angry")
)

_SST2_DATA = HubSource("stanfordnlp/sst2", "sentence", "label", test="validation")
_AGNEWS_DATA = HubSource("fancyzhx/ag_news", "text", "label")
_TREC_DATA = HubSource("CogComp/trec", "text", "coarse_label", revision=CONVERTED)

LABEL_WORDS = (
    KnownTask("reviews", (_REVIEW,), "sentiment of short reviews, like SST-2"),
    KnownTask("headlines", (_ARTICLE,), "topic of news items, like AG News"),
    KnownTask("questions", (_QUESTION,), "type of a question's answer, like TREC"),
    KnownTask("sst2", (_REVIEW,), "SST-2 movie reviews", _SST2_DATA),
    KnownTask("agnews", (_ARTICLE,), "AG News topics", _AGNEWS_DATA),
    KnownTask("trec", (_QUESTION,), "TREC coarse answer types", _TREC_DATA),
    KnownTask(
        "emo",
        (_DIALOGUE,),
        "EmoContext dialogue emotions",
        HubSource("SemEvalWorkshop/emo", "text", "label", revision=CONVERTED),
    ),
)


def _format(
    pattern: str, labels: tuple[str, ...], narrative: str = "", fault: str = ""
) -> PromptFormat:
    return PromptFormat(Template(pattern, "\n\n", narrative), labels, fault)


def _task(name: str, formats: tuple[PromptFormat, ...], note: str, hub: HubSource) -> KnownTask:
    return KnownTask(name, formats, note, hub, "overthinking")


_NEGATIVE = ("Negative", "Positive")
_BAD = ("bad", "good")
_STARS = ("0", "5")

_SST2 = (
    _format("Review: {text}\nAnswer: {label}.", _NEGATIVE),
    _format("Review: {text}\nAnswer: {label}.", _BAD),
    _format(
        "My review for last night’s film: {text} The critics agreed that this movie was {label}.",
        _BAD,
        "Here is what our critics think for this month’s films.",
    ),
    _format(
        'One of our critics wrote "{text}". Her sentiment towards the film was {label}.',
        ("negative", "positive"),
        "Critical reception [ edit ].",
    ),
    _format(
        # Two spaces after "Weekly", as published.
        'In a contemporary review, Roger Ebert wrote: "{text}". Entertainment Weekly  agreed, '
        "and the overall critical reception of the film was {label}.",
        _BAD,
    ),
    _format("Review: {text}\nPositive Review? {label}.", ("No", "Yes")),
    _format(
        "Review: {text}\n"
        "Question: Is the sentiment of the above review Positive or Negative?\n"
        "Answer: {label}.",
        _NEGATIVE,
    ),
    _format(
        "Review: {text}\n"
        "Question: Did the author think that the movie was good or bad?\n"
        "Answer: {label}.",
        _BAD,
    ),
    _format(
        "Question: Did the author of the following tweet think that the movie was good or bad?\n"
        "Tweet: {text}\n"
        "Answer: {label}.",
        _BAD,
    ),
    _format("{text} My overall feeling was that the movie was {label}.", _BAD),
    _format(
        "{text} I {label}.",
        ("liked", "hated"),
        fault="the published label words are swapped: negative reviews show 'liked'",
    ),
    _format(
        "{text} My friend asked me if I would give the movie 0 or 5 stars, I said {label}.", _STARS
    ),
    _format("Input: {text}\nSentiment: {label}.", _NEGATIVE),
    _format("Review: {text}\nPositive: {label}.", ("False", "True")),
    _format("Review: {text}\nStars: {label}.", _STARS),
)

_SST2_AB = _format("Review: {text}\nAnswer: {label}.", ("A", "B"))

_AGNEWS = _format("Article: {text}\nAnswer: {label}.", ("World", "Sports", "Business", "Science"))

_TREC = _format(
    "Question: {text}\nAnswer Type: {label}.",
    ("Abbreviation", "Entity", "Description", "Person", "Location", "Number"),
    "Classify the questions based on whether their answer type is a Number, Location, Person, "
    "Description, Entity, or Abbreviation.",
)

_DBPEDIA = _format(
    "Article: {text}\nAnswer: {label}.",
    (
        "Company",
        "School",
        "Artist",
        "Athlete",
        "Politician",
        "Transportation",
        "Building",
        "Nature",
        "Village",
        "Animal",
        "Plant",
        "Album",
        "Film",
        "Book",
    ),
    "Classify the documents based on whether they are about a Company, School, Artist, Athlete, "
    "Politician, Transportation, Building, Nature, Village, Animal, Plant, Album, Film, or Book.",
)

_ENTAILMENT = "{text}.\nquestion: {text2}. True or False?\nThe answer is: {label}."

_STANCES = ("neither", "no", "yes")

OVERTHINKING = (
    KnownTask(
        "unnatural",
        (
            _format(
                "{text}: {label}.",
                ("animal", "plant/vegetable", "sport"),
                "Consider the categories plant/vegetable, sport, and animal. "
                "Classify each object in its category.",
            ),
        ),
        "category of an object",
        paper="overthinking",
    ),
    _task("ot-sst2", _SST2, "SST-2 movie reviews, 15 formats", _SST2_DATA),
    _task("sst2_ab", (_SST2_AB,), "SST-2 with the label words A and B", _SST2_DATA),
    _task("ot-agnews", (_AGNEWS,), "AG News topics", _AGNEWS_DATA),
    _task(
        "ot-trec",
        (_TREC,),
        "TREC coarse answer types; label words in the data set's order, not the paper's code's",
        _TREC_DATA,
    ),
    _task(
        "dbpedia",
        (_DBPEDIA,),
        "DBpedia topics",
        HubSource("fancyzhx/dbpedia_14", "content", "label"),
    ),
    _task(
        "rte",
        (_format(_ENTAILMENT, ("True", "False")),),
        "RTE entailment of pairs",
        HubSource(
            "nyu-mll/glue", "sentence1", "label", test="validation", config="rte", text2="sentence2"
        ),
    ),
    _task(
        "mrpc",
        (_format(_ENTAILMENT, ("False", "True")),),
        "MRPC paraphrases",
        HubSource(
            "nyu-mll/glue",
            "sentence1",
            "label",
            test="validation",
            config="mrpc",
            text2="sentence2",
        ),
    ),
    _task(
        "sick",
        (_format(_ENTAILMENT, ("True", "Not sure", "False")),),
        "SICK entailment of pairs",
        HubSource("RobZamp/sick", "sentence_A", "label", revision=CONVERTED, text2="sentence_B"),
    ),
    _task(
        "medical_questions_pairs",
        (
            _format(
                "Question: {text}.\nQuestion: {text2}.\nAnswer: {label}.",
                ("not", "equivalent"),
                "Determine if the two questions are equivalent or not.",
            ),
        ),
        "pairs of medical questions",
        HubSource(
            "curaihealth/medical_questions_pairs",
            "question_1",
            "label",
            test=None,
            revision=CONVERTED,
            text2="question_2",
        ),
    ),
    _task(
        "tweet_eval_hate",
        (_format("Tweet: {text}\nSentiment: {label}.", ("favor", "against")),),
        "TweetEval, hate speech",
        HubSource("cardiffnlp/tweet_eval", "text", "label", config="hate"),
    ),
    _task(
        "tweet_eval_stance_atheism",
        (
            _format(
                "Tweet: {text}\nAnswer: {label}.",
                _STANCES,
                "Determine if the text supports atheism. Answer with yes, no, or neither.",
            ),
        ),
        "TweetEval, stance on atheism",
        HubSource("cardiffnlp/tweet_eval", "text", "label", config="stance_atheism"),
    ),
    _task(
        "tweet_eval_stance_feminist",
        (
            _format(
                "Tweet: {text}\nAnswer: {label}.",
                _STANCES,
                "Determine if the text supports feminism. Answer with yes, no, or neither.",
            ),
        ),
        "TweetEval, stance on feminism",
        HubSource("cardiffnlp/tweet_eval", "text", "label", config="stance_feminist"),
    ),
    _task(
        "ethos",
        (
            _format(
                "Text: {text}\nAnswer: {label}.",
                ("no", "yes"),
                "Is the following hate speech? Answer yes or no.",
            ),
        ),
        "Ethos, hate speech",
        HubSource(
            "iamollas/ethos", "text", "label", test=None, revision=CONVERTED, config="binary"
        ),
    ),
    _task(
        "financial_phrasebank",
        (_format("Text: {text}\nSentiment: {label}.", ("Negative", "Neutral", "Positive")),),
        "Financial PhraseBank, sentences all annotators agree on",
        HubSource(
            "takala/financial_phrasebank",
            "sentence",
            "label",
            test=None,
            revision=CONVERTED,
            config="sentences_allagree",
        ),
    ),
    _task(
        "poem_sentiment",
        (_format("{text}:\nThe sentiment is: {label}.", ("negative", "positive", "no impact")),),
        "Poem Sentiment, verses of mixed sentiment left out",
        HubSource(
            "google-research-datasets/poem_sentiment",
            "verse_text",
            "label",
            test="validation+test",
            left_out=(3,),
        ),
    ),
)


_PAIR = PromptFormat(Template("Q: {text}\nA: {label}", "\n\n"), ())

OPEN_ANSWERS = tuple(
    KnownTask(name, (_PAIR,), f"{note}; free-form answers", None, "function vectors")
    for name, note in (
        ("antonyms", "a word's opposite"),
        ("plurals", "a noun's plural"),
        ("past_tense", "a verb's past tense"),
        ("capitals", "a country's capital"),
        ("english_french", "the French word for an English one"),
    )
)

RATIONALES = (
    KnownTask(
        "comparisons",
        (
            PromptFormat(
                Template("{text}\nBecause: {rationale}\nAnswer: {label}", "\n\n"),
                ("More", "Fewer", "Equal"),
            ),
        ),
        "who has more, after one addition or subtraction; with rationales",
        None,
        "chain of thought",
    ),
)

_ALL = (*LABEL_WORDS, *OVERTHINKING, *RATIONALES, *OPEN_ANSWERS)
_KNOWN = {task.name: task for task in sorted(_ALL, key=lambda task: not task.offline)}


def known_tasks() -> tuple[KnownTask, ...]:
    """All tasks that `load_task` accepts by name, offline ones first."""
    return tuple(_KNOWN.values())


def known_task(name: str) -> KnownTask:
    """A built-in task: its formats, its label words and the location of its data.

    Raises:
        TaskError: the name is unknown; the message lists near matches.
    """
    if name not in _KNOWN:
        raise TaskError(
            f"Unknown task {name!r}. {near_matches(name, _KNOWN)} To load a file, give its path; for any "
            "other data set of the hub, give 'owner/name'."
        )
    return _KNOWN[name]


def find_known(name: object) -> KnownTask | None:
    """The built-in task of that name, if there is one."""
    return _KNOWN.get(str(name)) if isinstance(name, str | Path) else None


def task_format(
    known: KnownTask | None,
    template: Template | str | None,
    prompt_format: int | None,
    labels: Iterable[str] | None,
    separator: str | None,
    narrative: str | None,
) -> tuple[Template, tuple[str, ...]]:
    """Template and label words; `known` is the built-in task they are for, if any.

    Raises:
        TaskError: template or label words are missing or do not fit, or there is no such format.
    """
    labels = None if labels is None else label_names(labels, "labels=")
    named = known if template is None else None
    named = find_known(template) or named
    brought_by = "labels=" if labels is not None else f"template={template!r}"
    if named is not None:
        form = named.prompt_format(prompt_format)
        if form.fault and labels is None:
            warnings.warn(
                f"prompt_format={prompt_format} of {named.name!r}: {form.fault}. "
                "Give labels= to correct this.",
                stacklevel=3,
            )
        template = form.template
        labels = form.labels if labels is None else labels
    elif prompt_format is not None:
        raise TaskError(
            f"prompt_format={prompt_format} chooses among the formats of a built-in task, but none is named; "
            "name it with template=, or omit prompt_format=."
        )
    elif known is not None and labels is None:
        labels = known.labels
    if template is None or labels is None:
        raise TaskError(
            "A task from files or frames needs template= (for example "
            "'Review: {text}\\nSentiment: {label}', or the name of a built-in task) and labels= "
            "(label words in class order) or label_map=."
        )
    if known is not None and len(labels) != len(known.labels):
        raise TaskError(
            f"Task {known.name!r} has {len(known.labels)} classes ({', '.join(known.labels)}); "
            f"{brought_by} gives {len(labels)}."
        )
    return _laid_out(template, separator, narrative), tuple(labels)


def _laid_out(template: Template | str, separator: str | None, narrative: str | None) -> Template:
    base = template if isinstance(template, Template) else Template(template)
    return Template(
        base.pattern,
        base.separator if separator is None else separator,
        base.narrative if narrative is None else narrative,
    )
