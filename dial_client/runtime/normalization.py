"""Stems, stop words and synonyms of English, chosen for the names and descriptions of tools.

No rule is specific to a server or product. Words of other languages only lose their diacritics.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

MAX_WORD = 40
"""Maximum characters of a word; longer words are cut."""
MAX_NAME = 200
"""Maximum characters of a name that are read."""

WORD = re.compile(r"[^\W_]+")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""The boundaries between the words of ``camelCase``."""
_MARKS = re.compile("[\u0300-\u036f]")

_STOP_WORDS = """
    about again ago already also always am an and any anybody anyone anything are as at be because been before being
    both but by can cannot could couldn did didn do does doesn doing don done each either else ever every everybody
    everyone everything for from had hadn has hasn have haven having he her here hers him his how however if in into
    is isn it its just kind let like ll lot make makes many may me might mine more most much must my need neither
    never no nobody nor not nothing now of often one only onto or other our ours own please quite rather re really
    same shall she should shouldn so some somebody someone something soon sort still such than that the their theirs
    them then there these they thing things this those though through to today together tomorrow too tool tools
    toward under unless until upon us use used uses using ve very via want wants was wasn way we were weren what
    whatever when where whether which while who whom whose why will with within without would wouldn yes yesterday
    yet you your yours
"""

PARTICLES = frozenset({"back", "down", "off", "on", "out", "over", "up"})
"""Words that have a meaning after a verb, and mostly none elsewhere."""

QUESTIONS = frozenset(
    {"are", "did", "do", "does", "how", "is", "was", "were", "what", "when", "where", "which", "who", "whose", "why"}
)
"""The first words of questions, which most likely need a tool that gets, lists or finds something."""

_SYNONYMS = """
create add new insert
create open start begin register generate
delete remove erase drop discard trash destroy
clear empty reset purge truncate
list show display view browse all
get read show view fetch retrieve see load open
find search lookup query locate
update edit change modify alter set adjust replace fix correct
update reschedule postpone shift
set raise lower increase decrease reduce
move put rename
send post write tell publish notify
say message comment post
write save store put
run execute start trigger launch invoke
retry rerun repeat again
stop cancel end abort terminate kill
pause suspend
resume continue
reply answer respond response
ask request
copy duplicate clone
connect link relate
upload attach attachment
download export save
share access permission
assign owner delegate
approve accept confirm
reject decline deny
close resolve finish complete
check verify validate test
status state health
enable activate
disable deactivate
install setup
schedule plan
go visit navigate open
summary summarize overview
compare diff difference change
push commit
compute calculate
file document doc
file disk filesystem
folder directory
message mail email
message post chat
repository repo project
issue ticket bug task
comment note remark
user person people member account
customer client
contact person people
meeting meet event appointment calendar
available free busy
database db sql
row record entry line
column field
page site website url web
page wiki article
picture image photo
video movie film
music song track audio media
sound volume loud quiet
invoice bill
pay payment charge
money balance amount fund
price cost
coupon discount
evidence proof
log history
error failure fail problem
build workflow pipeline ci job
label tag
star favorite bookmark
reaction emoji
channel room
version release revision
machine host node server
container pod
text content
spreadsheet sheet
size large big
fast slow performance speed optimize
security vulnerability
private direct personal
password secret credential token
remind reminder alarm timer
weather forecast
warm cold hot heat temperature
end tail
"""

_ENDINGS = (("ing", 3), ("ed", 3), ("ion", 3), ("ment", 3), ("er", 4), ("ly", 5))
"""English endings, each with the minimum number of letters of the word without it."""

SAME_AS = {
    ("pull", "request"): ("pr",),
    ("merge", "request"): ("mr",),
    ("direct", "messag"): ("dm",),
    ("look", "up"): ("find",),
    ("get", "rid"): ("delet",),
    ("pr",): ("pull", "request"),
    ("mr",): ("merg", "request"),
    ("dm",): ("direct", "messag"),
    ("db",): ("databas",),
    ("k8s",): ("kubernet",),
}
"""Abbreviations and phrases as stems, with the stems of their synonyms."""


def find_significant_stem(word: str) -> str:
    """Return the stem of a word; empty for a stop word or a single letter."""
    is_letter = len(word) == 1 and word.isascii() and word.isalpha()
    return "" if is_letter or word in _list_stop_words() else stem(word[:MAX_WORD])


@cache
def _list_stop_words() -> frozenset[str]:
    return frozenset(_STOP_WORDS.split())


@cache
def build_synonyms() -> Mapping[str, Iterable[str]]:
    """Return the synonyms of each stem that has any, as stems."""
    groups = [[stem(word) for word in line.split()] for line in _SYNONYMS.strip().splitlines()]
    by_stem: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for group in groups:
        for word in group:
            by_stem[word] |= dict.fromkeys(synonym for synonym in group if synonym != word)
    return by_stem


def split_name(name: str) -> tuple[str, ...]:
    """Return the words of ``createIssue``, ``create_issue`` or ``create-issue``; for camel case also the whole word."""
    words: list[str] = []
    for chunk in WORD.findall(name[:MAX_NAME]):
        parts = HUMP.split(chunk)
        words += [fold(part) for part in parts]
        if len(parts) > 1:
            words.append(fold(chunk))
    return tuple(words)


def fold(text: str) -> str:
    """Return a text in lower case and without diacritics."""
    if text.isascii():
        return text.lower()
    return _MARKS.sub("", unicodedata.normalize("NFKD", text)).casefold()


def list_letter_pairs(word: str) -> set[str]:
    """Return the pairs of adjacent letters; the start and the end of the word count as letters."""
    framed = f"^{word}$"
    return {framed[index : index + 2] for index in range(len(framed) - 1)}


def stem(word: str) -> str:
    """Return an English word without its plural ``s``, its most common endings, and a final ``e``."""
    if not word.isascii() or len(word) < 4:
        return word
    word = _to_singular(word)
    for ending, least in _ENDINGS:
        base = word.removesuffix(ending)
        if len(base) >= least and base != word and not set("aeiouy").isdisjoint(base):
            if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
                base = base[:-1]
            return base.removesuffix("e") if len(base) > 3 else base
    return word.removesuffix("e") if len(word) > 3 else word


def _to_singular(word: str) -> str:
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
