"""LaTeX commands, and the characters that replace them."""

# ruff: noqa: RUF001 - these are the characters of formulas

from __future__ import annotations

_GREEK = (
    "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ "
    "mu μ nu ν xi ξ pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω "
    "Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω"
)
_OPERATORS = (
    "times × cdot · div ÷ pm ± mp ∓ ast ∗ star ⋆ circ ∘ bullet • oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ wedge ∧ vee ∨ land ∧ "
    "lor ∨ cap ∩ cup ∪ setminus ∖ sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcup ⋃ bigcap ⋂ bigoplus ⨁ "
    "bigotimes ⨂ nabla ∇ partial ∂ infty ∞ neg ¬ lnot ¬ forall ∀ exists ∃ nexists ∄ emptyset ∅ varnothing ∅ angle ∠ "
    "perp ⊥ top ⊤ bot ⊥ dagger † ddagger ‡ prime ′ degree ° hbar ℏ ell ℓ Re ℜ Im ℑ aleph ℵ wp ℘ surd √ triangle △ "
    "square □ blacksquare ■ checkmark ✓ cdots ⋯ ldots … dots … vdots ⋮ ddots ⋱ colon : backslash \\ qed ∎"
)
_RELATIONS = (
    "le ≤ leq ≤ leqslant ≤ ge ≥ geq ≥ geqslant ≥ ne ≠ neq ≠ ll ≪ gg ≫ equiv ≡ approx ≈ sim ∼ simeq ≃ cong ≅ propto ∝ "
    "in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ mid ∣ nmid ∤ parallel ∥ prec ≺ succ ≻ "
    "vdash ⊢ models ⊨ to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ "
    "implies ⟹ impliedby ⟸ iff ⟺ longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹ mapsto ↦ longmapsto ⟼ uparrow ↑ "
    "downarrow ↓ updownarrow ↕ nearrow ↗ searrow ↘ hookrightarrow ↪ rightharpoonup ⇀ rightleftharpoons ⇌ therefore ∴ "
    "because ∵ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ "
    "lbrace { rbrace } lbrack [ rbrack ]"
)
_NAMES = (
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim limsup liminf max min sup inf det "
    "dim ker deg gcd hom arg mod Pr"
)


def _parse_pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


SYMBOLS = (
    _parse_pairs(_GREEK) | _parse_pairs(_OPERATORS) | _parse_pairs(_RELATIONS) | {name: name for name in _NAMES.split()}
)
SPACES = dict.fromkeys((",", ";", ":", " ", ">", "~", "enspace"), " ") | {"quad": "  ", "qquad": "    ", "!": ""}
_STYLES = "displaystyle textstyle limits nolimits nonumber notag"
IGNORED = frozenset(f"left right big Big bigg Bigg bigl bigr Bigl Bigr middle {_STYLES}".split())
_UPRIGHT = "mathrm mathbf mathit mathsf mathtt operatorname boldsymbol bm mbox"
TEXTS = frozenset(f"text textrm textbf textit textsf texttt {_UPRIGHT}".split())
ACCENTS = {
    "hat": "\u0302",
    "widehat": "\u0302",
    "bar": "\u0304",
    "overline": "\u0305",
    "vec": "\u20d7",
    "dot": "\u0307",
}
ACCENTS |= {"ddot": "\u0308", "tilde": "\u0303", "widetilde": "\u0303", "underline": "\u0332"}
DOUBLE_STRUCK = dict(zip("CHNPQRZABDEFGIJKLMOSTUVWXY1", "ℂℍℕℙℚℝℤ𝔸𝔹𝔻𝔼𝔽𝔾𝕀𝕁𝕂𝕃𝕄𝕆𝕊𝕋𝕌𝕍𝕎𝕏𝕐𝟙", strict=True))
SCRIPT = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "𝒜ℬ𝒞𝒟ℰℱ𝒢ℋℐ𝒥𝒦ℒℳ𝒩𝒪𝒫𝒬ℛ𝒮𝒯𝒰𝒱𝒲𝒳𝒴𝒵", strict=True))
RAISED = dict(
    zip("0123456789+-=()abcdefghijklmnoprstuvwxyzT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ", strict=True)
)
RAISED |= {"′": "′", "∘": "°", "α": "ᵅ", "β": "ᵝ", "γ": "ᵞ", "δ": "ᵟ", "θ": "ᶿ", " ": ""}
LOWERED = dict(zip("0123456789+-=()aehijklmnoprstuvxβγρφχ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ", strict=True))
LOWERED |= {" ": "", ",": ","}
