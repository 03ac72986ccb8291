r"""Formulas in LaTeX as readable Unicode: ``\frac{a+b}{2} \le x^2`` becomes ``(a+b)/2 ≤ x²``.

Commands without a Unicode form are kept as they are written.
"""

# ruff: noqa: RUF001, S105 - the characters of formulas; tokens are those of LaTeX

from __future__ import annotations

import re
from html.entities import html5

MAX_DEPTH = 20
_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|[{}^_&\[\]]|\s+|[A-Za-z0-9.]+|.", re.DOTALL)
# A number or a letter, which needs no brackets in a fraction.
_SIMPLE = re.compile(r"(?:[0-9.]+|√?[^\W\d_])[′°¹²³⁰-₟ᵃ-ᵿ\u0300-\u036f\u20d7]*\Z")
# The tokens that are neither commands nor text; a closing brace here has no opening one.
_SIGNS = {"&": " ", "'": "′", "\\\\": "\n", "}": ""}
_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}
_OF_TWO = frozenset(("frac", "dfrac", "tfrac", "cfrac", "binom"))
# The commands that HTML does not name, or names otherwise.
_SYMBOLS = (
    "epsilon ϵ varepsilon ε phi ϕ varphi φ cdot · ast ∗ star ⋆ circ ∘ land ∧ lor ∨ iint ∬ partial ∂ infty ∞ neg ¬ "
    "lnot ¬ exists ∃ degree ° surd √ triangle △ blacksquare ■ cdots ⋯ ldots … dots … vdots ⋮ ddots ⋱ backslash \\ "
    "qed ∎ leqslant ≤ geqslant ≥ neq ≠ models ⊨ to → gets ← implies ⟹ impliedby ⟸ iff ⟺ lvert | rvert | lVert ‖ rVert ‖"
)
# Names of HTML that are other commands in LaTeX.
_OTHERS = {"acute", "breve", "check", "dot", "grave", "not", "par", "ring", "sc", "tilde"}
_NAMES = (
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim limsup liminf max min sup inf det "
    "dim ker deg gcd hom arg mod Pr"
)


_WORDS = _SYMBOLS.split()
# The named characters of HTML have the names of LaTeX, from which they come.
_NAMED = {name[:-1]: text for name, text in html5.items() if name[-1] == ";" and len(text) == 1 and text.isprintable()}
SYMBOLS = {name: text for name, text in _NAMED.items() if name not in _OTHERS}
SYMBOLS |= dict(zip(_WORDS[::2], _WORDS[1::2], strict=True)) | {name: name for name in _NAMES.split()}
SPACES = dict.fromkeys((",", ";", ":", " ", ">", "~", "enspace"), " ") | {"quad": "  ", "qquad": "    ", "!": ""}
_STYLES = "displaystyle textstyle limits nolimits nonumber notag"
IGNORED = frozenset(f"left right big Big bigg Bigg bigl bigr Bigl Bigr middle {_STYLES}".split())
_UPRIGHT = "mathrm mathbf mathit mathsf mathtt operatorname boldsymbol bm mbox"
TEXTS = frozenset(f"text textrm textbf textit textsf texttt {_UPRIGHT}".split())
ACCENTS = {"hat": "\u0302", "widehat": "\u0302", "bar": "\u0304", "overline": "\u0305", "vec": "\u20d7"}
ACCENTS |= {"dot": "\u0307", "ddot": "\u0308", "tilde": "\u0303", "widetilde": "\u0303", "underline": "\u0332"}
DOUBLE_STRUCK = dict(zip("CHNPQRZABDEFGIJKLMOSTUVWXY1", "ℂℍℕℙℚℝℤ𝔸𝔹𝔻𝔼𝔽𝔾𝕀𝕁𝕂𝕃𝕄𝕆𝕊𝕋𝕌𝕍𝕎𝕏𝕐𝟙", strict=True))
SCRIPT = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "𝒜ℬ𝒞𝒟ℰℱ𝒢ℋℐ𝒥𝒦ℒℳ𝒩𝒪𝒫𝒬ℛ𝒮𝒯𝒰𝒱𝒲𝒳𝒴𝒵", strict=True))
RAISED = dict(
    zip("0123456789+-=()abcdefghijklmnoprstuvwxyzT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ", strict=True)
)
RAISED |= {"′": "′", "∘": "°", "α": "ᵅ", "β": "ᵝ", "γ": "ᵞ", "δ": "ᵟ", "θ": "ᶿ", " ": ""}
LOWERED = dict(zip("0123456789+-=()aehijklmnoprstuvxβγρφχ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ", strict=True))
LOWERED |= {" ": "", ",": ","}


def to_unicode(source: str) -> str:
    """Return a formula in Unicode; line breaks of LaTeX become line feeds."""
    text = _Reader(source).read("")
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


class _Reader:
    """Reads a formula from left to right, once."""

    def __init__(self, source: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(source)
        self._at = 0
        self._depth = 0

    def read(self, end: str) -> str:
        """Return the text up to the token `end`, or to the end of the formula if the token is missing."""
        parts: list[str] = []
        while self._at < len(self._tokens) and self._tokens[self._at] != end:
            parts.append(self._read_next())
        self._at += 1
        return "".join(parts)

    def _read_next(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        if token == "{":
            return self._read_group()
        if token in "^_":
            return self._read_script(token)
        if token in _SIGNS:
            return _SIGNS[token]
        if token[0] == "\\":
            return self._read_command(token[1:].rstrip("*"))
        return " " if token.isspace() else token

    def _read_group(self) -> str:
        """Return the content of braces, after the opening brace has been read."""
        if self._depth >= MAX_DEPTH:
            return "{"
        self._depth += 1
        text = self.read("}")
        self._depth -= 1
        return text

    def _read_argument(self) -> str:
        """Return the argument of a command: a group, or the next character."""
        while self._at < len(self._tokens) and self._tokens[self._at].isspace():
            self._at += 1
        if self._at >= len(self._tokens) or self._tokens[self._at] == "}" or self._depth >= MAX_DEPTH:
            return ""
        token = self._tokens[self._at]
        if len(token) > 1 and token[0].isalnum():
            self._tokens[self._at] = token[1:]
            return token[0]
        self._depth += 1
        text = self._read_next()
        self._depth -= 1
        return text.strip()

    def _read_script(self, mark: str) -> str:
        text = self._read_argument()
        table = RAISED if mark == "^" else LOWERED
        if text and all(char in table for char in text):
            return "".join(table[char] for char in text)
        return mark + (text if len(text) <= 1 else f"({text})")

    def _read_command(self, name: str) -> str:
        if name in SYMBOLS:
            return self._format_symbol(name)
        if name in SPACES:
            return SPACES[name]
        if name in IGNORED:
            return self._skip_period()
        if name in TEXTS:
            return self._read_argument()
        if name in ACCENTS:
            text = self._read_argument()
            return text[:1] + ACCENTS[name] + text[1:] if len(text) <= 1 else "".join(c + ACCENTS[name] for c in text)
        if name in ("mathbb", "mathcal", "mathscr"):
            table = DOUBLE_STRUCK if name == "mathbb" else SCRIPT
            return "".join(table.get(char, char) for char in self._read_argument())
        if name in _OF_TWO:
            above, below = self._read_argument(), self._read_argument()
            return f"C({above}, {below})" if name == "binom" else f"{_enclose(above)}/{_enclose(below)}"
        return self._read_structure(name)

    def _read_structure(self, name: str) -> str:
        if name == "sqrt":
            return self._read_root()
        if name in ("begin", "end"):
            self._read_argument()
            return "\n"
        if name == "boxed":
            return f"[{self._read_argument()}]"
        if name == "not":
            return f"{self._read_argument()}\u0338"
        if name in ("pmod", "tag"):
            return f" ({'mod ' if name == 'pmod' else ''}{self._read_argument()})"
        if len(name) == 1 and not name.isalpha():
            return name
        is_group = self._at < len(self._tokens) and self._tokens[self._at] == "{"
        return f"\\{name}{{{self._read_argument()}}}" if is_group else f"\\{name}"

    def _format_symbol(self, name: str) -> str:
        """Return a symbol; the name of a function is separated from the next token by a space."""
        text = SYMBOLS[name]
        following = self._tokens[self._at] if self._at < len(self._tokens) else ""
        return f"{text} " if text == name and len(name) > 1 and following[:1].isalnum() else text

    def _skip_period(self) -> str:
        """Skip a period, which stands for an invisible delimiter."""
        if self._at < len(self._tokens) and self._tokens[self._at][0] == ".":
            self._tokens[self._at] = self._tokens[self._at][1:] or " "
        return ""

    def _read_root(self) -> str:
        degree = ""
        if self._at < len(self._tokens) and self._tokens[self._at] == "[":
            self._at += 1
            degree = self.read("]")
        inside = self._read_argument()
        sign = _ROOTS.get(degree) or "".join(RAISED.get(char, char) for char in degree) + "√"
        return sign + _enclose(inside)


def _enclose(text: str) -> str:
    """Return a text in brackets, unless it is a single number or letter."""
    return text if _SIMPLE.match(text) else f"({text})"
