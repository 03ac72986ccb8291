// Invisible characters: ranges of code points from the Unicode Character Database 17.0.0, in hexadecimal, as in
// runtime/safe_text.py of the host. A test compares the two.

const DEFAULT_IGNORABLE =
  "ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8 " +
  "1bca0-1bca3 1d173-1d17a e0000-e0fff";
const CONTROL = "0-8 b-1f 7f-9f d800-dfff fff9-fffb";
const PICTOGRAPHIC =
  "a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 23cf 23e9-23f3 23f8-23fa 24c2 25aa-25ab 25b6 " +
  "25c0 25fb-25fe 2600-2604 260e 2611 2614-2615 2618 261d 2620 2622-2623 2626 262a 262e-262f 2638-263a 2640 " +
  "2642 2648-2653 265f-2660 2663 2665-2666 2668 267b 267e-267f 2692-2697 2699 269b-269c 26a0-26a1 26a7 " +
  "26aa-26ab 26b0-26b1 26bd-26be 26c4-26c5 26c8 26ce-26cf 26d1 26d3-26d4 26e9-26ea 26f0-26f5 26f7-26fa 26fd " +
  "2702 2705 2708-270d 270f 2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 274c 274e 2753-2755 2757 " +
  "2763-2764 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f004 " +
  "1f02c-1f02f 1f094-1f09f 1f0af-1f0b0 1f0c0 1f0cf-1f0d0 1f0f6-1f0ff 1f170-1f171 1f17e-1f17f 1f18e " +
  "1f191-1f19a 1f1ae-1f1e5 1f201-1f20f 1f21a 1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f25f 1f266-1f321 " +
  "1f324-1f393 1f396-1f397 1f399-1f39b 1f39e-1f3f0 1f3f3-1f3f5 1f3f7-1f3fa 1f400-1f4fd 1f4ff-1f53d " +
  "1f549-1f54e 1f550-1f567 1f56f-1f570 1f573-1f57a 1f587 1f58a-1f58d 1f590 1f595-1f596 1f5a4-1f5a5 1f5a8 " +
  "1f5b1-1f5b2 1f5bc 1f5c2-1f5c4 1f5d1-1f5d3 1f5dc-1f5de 1f5e1 1f5e3 1f5e8 1f5ef 1f5f3 1f5fa-1f64f " +
  "1f680-1f6c5 1f6cb-1f6d2 1f6d5-1f6e5 1f6e9 1f6eb-1f6f0 1f6f3-1f6ff 1f7da-1f7ff 1f80c-1f80f 1f848-1f84f " +
  "1f85a-1f85f 1f888-1f88f 1f8ae-1f8af 1f8bc-1f8bf 1f8c2-1f8cf 1f8d9-1f8ff 1f90c-1f93a 1f93c-1f945 " +
  "1f947-1f9ff 1fa58-1fa5f 1fa6e-1faff 1fc00-1fffd";
const EMOJI_MODIFIER = "1f3fb-1f3ff";
const VIRAMA =
  "94d 9cd a4d acd b4d bcd c4d ccd d3b-d3c d4d dca e3a eba f84 1039-103a 1714-1715 1734 17d2 1a60 1b44 " +
  "1baa-1bab 1bf2-1bf3 2d7f a806 a82c a8c4 a953 a9c0 aaf6 abed 10a3f 11046 11070 1107f 110b9 11133-11134 " +
  "111c0 11235 112ea 1134d 113ce-113d0 11442 114c2 115bf 1163f 116b6 1172b 11839 1193d-1193e 119e0 11a34 11a47 11a99 " +
  "11c3f 11d44-11d45 11d97 11f41-11f42 1612f";
const DUAL_JOINING =
  "620 626 628 62a-62e 633-63f 641-647 649-64a 66e-66f 678-687 69a-6bf 6c1-6c2 6cc 6ce 6d0-6d1 6fa-6fc 6ff " +
  "750-758 75c-76a 76d-770 772 775-777 77a-77f 886 889-88d 88f 8a0-8a9 8af-8b0 8b3-8b8 8ba-8c8";
const RIGHT_JOINING =
  "622-625 627 629 62f-632 648 671-673 675-677 688-699 6c0 6c3-6cb 6cd 6cf 6d2-6d3 6d5 6ee-6ef 759-75b " +
  "76b-76c 771 773-774 778-779 870-882 88e 8aa-8ac 8ae 8b1-8b2 8b9";
const TRANSPARENT = "610-61a 64b-65f 670 6d6-6dc 6df-6e4 6e7-6e8 6ea-6ed 897-89f 8ca-8e1 8e3-8ff";
// Line and paragraph separators would break a line that is one line in the terminal and for the model.
const SEPARATORS = "2028-2029";

const toCharacterClass = (...tables) => tables.join(" ").split(" ").map((item) => {
  const [first, last] = item.split("-");
  return `\\u{${first}}-\\u{${last ?? first}}`;
}).join("");

const TABLES = [PICTOGRAPHIC, EMOJI_MODIFIER, VIRAMA, DUAL_JOINING, RIGHT_JOINING, TRANSPARENT];
const [P, M, V, D, R, T] = TABLES.map((table) => toCharacterClass(table));
const ANY = toCharacterClass(DEFAULT_IGNORABLE, CONTROL, SEPARATORS);
// Variation selectors and joiners stay where they change the drawn text: in emoji, after a virama, between Arabic letters.
const JOINERS =
  `\\ufe0f(?<![${P}]\\ufe0f)(?!(?<=[0-9#*]\\ufe0f)\\u20e3)` +
  `|\\u200d(?!(?:(?<=[${P}${M}]\\u200d)|(?<=[${P}]\\ufe0f\\u200d))[${P}]|(?<=[${V}]\\u200d)` +
  "|(?<=\\u09b0\\u200d)\\u09cd|(?<=\\u0cb0\\u200d)\\u0ccd)" +
  `|\\u200c(?!(?<=[${V}]\\u200c)|(?:(?<=[${D}]\\u200c)|(?<=[${D}][${T}]\\u200c)|(?<=[${D}][${T}]{2}\\u200c))` +
  `[${T}]{0,2}[${D}${R}])`;
const INVISIBLE = new RegExp(`(?![\\ufe0f\\u200c\\u200d])[${ANY}]|${JOINERS}`, "gu");

/** Escape invisible characters, such as marks that reverse the direction of writing: "\\u{202e}". */
export function escapeInvisible(text) {
  return text.replace(INVISIBLE, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
}

/** Count the characters that `escapeInvisible` escapes. */
export function countInvisible(text) {
  return text.match(INVISIBLE)?.length ?? 0;
}
