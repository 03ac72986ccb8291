"""Invisible characters: ranges of code points from the Unicode Character Database, in hexadecimal.

The page has the same tables (``serve/page/unseen.js``); a test compares them. Python's ``unicodedata`` does not have
these properties.
"""

from __future__ import annotations

UNICODE_VERSION = "17.0.0"

DEFAULT_IGNORABLE = (
    "ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8 "
    "1bca0-1bca3 1d173-1d17a e0000-e0fff"
)
"""``Default_Ignorable_Code_Point`` (DerivedCoreProperties.txt): characters without a glyph; some are reserved."""

BIDI_CONTROL = "61c 200e-200f 202a-202e 2066-2069"
"""``Bidi_Control`` (PropList.txt): they change the direction of text. All of them are in `DEFAULT_IGNORABLE` too."""

CONTROL = "0-8 b-1f 7f-9f d800-dfff fff9-fffb"
"""Controls except tab and line feed, lone surrogates, and interlinear annotations (General_Category Cc, Cs, Cf)."""

PICTOGRAPHIC = (
    "a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 23cf 23e9-23f3 23f8-23fa 24c2 25aa-25ab 25b6 "
    "25c0 25fb-25fe 2600-2604 260e 2611 2614-2615 2618 261d 2620 2622-2623 2626 262a 262e-262f 2638-263a 2640 "
    "2642 2648-2653 265f-2660 2663 2665-2666 2668 267b 267e-267f 2692-2697 2699 269b-269c 26a0-26a1 26a7 "
    "26aa-26ab 26b0-26b1 26bd-26be 26c4-26c5 26c8 26ce-26cf 26d1 26d3-26d4 26e9-26ea 26f0-26f5 26f7-26fa 26fd "
    "2702 2705 2708-270d 270f 2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 274c 274e 2753-2755 2757 "
    "2763-2764 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f004 "
    "1f02c-1f02f 1f094-1f09f 1f0af-1f0b0 1f0c0 1f0cf-1f0d0 1f0f6-1f0ff 1f170-1f171 1f17e-1f17f 1f18e "
    "1f191-1f19a 1f1ae-1f1e5 1f201-1f20f 1f21a 1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f25f 1f266-1f321 "
    "1f324-1f393 1f396-1f397 1f399-1f39b 1f39e-1f3f0 1f3f3-1f3f5 1f3f7-1f3fa 1f400-1f4fd 1f4ff-1f53d "
    "1f549-1f54e 1f550-1f567 1f56f-1f570 1f573-1f57a 1f587 1f58a-1f58d 1f590 1f595-1f596 1f5a4-1f5a5 1f5a8 "
    "1f5b1-1f5b2 1f5bc 1f5c2-1f5c4 1f5d1-1f5d3 1f5dc-1f5de 1f5e1 1f5e3 1f5e8 1f5ef 1f5f3 1f5fa-1f64f "
    "1f680-1f6c5 1f6cb-1f6d2 1f6d5-1f6e5 1f6e9 1f6eb-1f6f0 1f6f3-1f6ff 1f7da-1f7ff 1f80c-1f80f 1f848-1f84f "
    "1f85a-1f85f 1f888-1f88f 1f8ae-1f8af 1f8bc-1f8bf 1f8c2-1f8cf 1f8d9-1f8ff 1f90c-1f93a 1f93c-1f945 "
    "1f947-1f9ff 1fa58-1fa5f 1fa6e-1faff 1fc00-1fffd"
)
"""``Extended_Pictographic`` (emoji-data.txt): characters that variation selectors and joiners turn into emoji."""

EMOJI_MODIFIER = "1f3fb-1f3ff"
"""``Emoji_Modifier`` (emoji-data.txt): the skin tones."""

VIRAMA = (
    "94d 9cd a4d acd b4d bcd c4d ccd d3b-d3c d4d dca e3a eba f84 1039-103a 1714-1715 1734 17d2 1a60 1b44 "
    "1baa-1bab 1bf2-1bf3 2d7f a806 a82c a8c4 a953 a9c0 aaf6 abed 10a3f 11046 11070 1107f 110b9 11133-11134 "
    "111c0 11235 112ea 1134d 113ce-113d0 11442 114c2 115bf 1163f 116b6 1172b 11839 1193d-1193e 119e0 11a34 11a47 11a99 "
    "11c3f 11d44-11d45 11d97 11f41-11f42 1612f"
)
"""``Canonical_Combining_Class=Virama`` (UnicodeData.txt): a joiner after a virama changes the form of a syllable."""

DUAL_JOINING = (
    "620 626 628 62a-62e 633-63f 641-647 649-64a 66e-66f 678-687 69a-6bf 6c1-6c2 6cc 6ce 6d0-6d1 6fa-6fc 6ff "
    "750-758 75c-76a 76d-770 772 775-777 77a-77f 886 889-88d 88f 8a0-8a9 8af-8b0 8b3-8b8 8ba-8c8"
)
"""``Joining_Type=Dual_Joining`` (DerivedJoiningType.txt), of the Arabic script only."""

RIGHT_JOINING = (
    "622-625 627 629 62f-632 648 671-673 675-677 688-699 6c0 6c3-6cb 6cd 6cf 6d2-6d3 6d5 6ee-6ef 759-75b "
    "76b-76c 771 773-774 778-779 870-882 88e 8aa-8ac 8ae 8b1-8b2 8b9"
)
"""``Joining_Type=Right_Joining`` (DerivedJoiningType.txt), of the Arabic script only."""

TRANSPARENT = "610-61a 64b-65f 670 6d6-6dc 6df-6e4 6e7-6e8 6ea-6ed 897-89f 8ca-8e1 8e3-8ff"
"""``Joining_Type=Transparent`` (DerivedJoiningType.txt), of the Arabic script only: the marks of its letters."""


def parse_ranges(table: str) -> tuple[range, ...]:
    """Return the ranges of code points in a table."""
    ends = (item.partition("-") for item in table.split())
    return tuple(range(int(first, 16), int(last or first, 16) + 1) for first, _, last in ends)


def to_character_class(*tables: str, without: str = "") -> str:
    """Return the content of a regular expression's character class for some tables, except the characters `without`."""
    ranges = [found for table in tables for found in parse_ranges(table)]
    for char in map(ord, without):
        ranges = [part for found in ranges for part in _split(found, char)]
    return "".join(f"\\U{found.start:08x}-\\U{found.stop - 1:08x}" for found in ranges)


def _split(found: range, char: int) -> tuple[range, ...]:
    if char not in found:
        return (found,)
    return tuple(part for part in (range(found.start, char), range(char + 1, found.stop)) if part)
