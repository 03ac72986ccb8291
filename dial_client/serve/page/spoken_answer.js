// An answer for screen readers while it is written: whole sentences without Markdown, some seconds apart.

import { parseInline, toPlainText } from "./markdown_inline.js";
import { translate } from "./language.js";

/** Milliseconds between two announcements: a screen reader speaks one after another. */
const PAUSE = 3_000;

/** Characters that are announced. The end of a longer answer announces its length. */
const MAX_SPOKEN = 2_000;

/** The end of a sentence, a heading or an item. */
const END = /[.!?…]["'”’»)\]*_]*(?=\s)|[。！？]["”’」』）]*|\n/g;

/** Characters of the end of a sentence that an earlier piece of text may contain, before the white space arrives. */
const LONGEST_END = 8;

/** The prefix of a line: quote marks, and the mark of a heading or of an item. */
const PREFIX = /^\s*(?:>\s*)*(?:(#{1,6})\s+|([-*+])\s+(?:\[[ xX]\]\s+)?|(\d{1,9})[.)]\s+)?/;
/** Marks of emphasis or code that spans several sentences. */
const STRAY_MARKS = /\*{2,3}|`|(?<=\S)\*(?=\s|$)/g;
const RULE = /^\s*(?:[-*_]\s*){3,}$/;
const BLOCK = /^\s*(`{3,}|~{3,}|\||\$\$|\\\[)/;

export class SpokenAnswer {
  #speak;
  #schedule;
  /** The line that is being written, without its sentences that are in `#ready`. */
  #line = "";
  #isLineStart = true;
  /** Text without Markdown that is not announced yet. */
  #ready = "";
  #block = null;
  #isScheduled = false;
  #isFinished = false;
  #length = 0;
  #room = MAX_SPOKEN;

  /** `speak(text)` announces a text; `schedule(action, milliseconds)` is setTimeout. */
  constructor(speak, schedule = (action, wait) => setTimeout(action, wait)) {
    this.#speak = speak;
    this.#schedule = schedule;
  }

  /** Add text of the answer. */
  append(text) {
    this.#length += text.length;
    if (this.#room <= 0) return;
    const [first, ...rest] = text.split("\n");
    this.#line += first;
    for (const line of rest) {
      this.#endLine(this.#line);
      this.#line = line;
      this.#isLineStart = true;
    }
    // Only the new text can end a sentence: a long line is not searched again for each piece.
    if (findLastEnd(this.#line.slice(-text.length - LONGEST_END))) this.#takeSentences();
    this.#speakSoon();
  }

  /** Announce the rest and `end`, a sentence about the end of the answer. */
  finish(end) {
    if (this.#isFinished) return;
    this.#isFinished = true;
    this.#endLine(this.#line);
    if (this.#block) this.#endBlock();
    const rest = this.#clip(this.#ready);
    const length = this.#room <= 0 ? translate("answer.length", { count: this.#length }) : "";
    const text = [rest, length, end].filter(Boolean).join(" ");
    if (text) this.#speak(text);
  }

  #speakSoon() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#schedule(() => {
      this.#isScheduled = false;
      if (!this.#isFinished) this.#speakReady();
    }, PAUSE);
  }

  #speakReady() {
    const end = findLastEnd(this.#ready);
    const text = this.#clip(this.#ready.slice(0, end));
    this.#ready = this.#ready.slice(end);
    if (text) this.#speak(text);
  }

  /** Return the beginning of a text that may still be announced: whole sentences if there are any. */
  #clip(text) {
    const line = text.replace(/\s+/g, " ").trim();
    const room = this.#room;
    this.#room -= line.length;
    if (line.length <= room) return line;
    const beginning = line.slice(0, Math.max(0, room));
    // A text whose first sentence is too long is better than silence.
    return beginning.slice(0, findLastEnd(beginning) || (room === MAX_SPOKEN ? room : 0)).trim();
  }

  #takeSentences() {
    if (this.#block || (this.#isLineStart && (BLOCK.test(this.#line) || RULE.test(this.#line)))) return;
    const prefix = this.#isLineStart ? PREFIX.exec(this.#line)[0].length : 0;
    const end = findLastEnd(this.#line.slice(prefix));
    const text = this.#line.slice(0, prefix + end);
    const isInLink = text.lastIndexOf("](") > text.lastIndexOf(")");
    if (!end || isInLink) return;
    this.#addText(text);
    this.#line = this.#line.slice(prefix + end);
    this.#isLineStart = false;
  }

  #endLine(line) {
    if (this.#block && !this.#block.isTable) {
      this.#block.count += 1;
      if (!line.trim() || line.includes(this.#block.closing)) this.#endBlockAt(line);
      return;
    }
    const [, mark] = (this.#isLineStart && BLOCK.exec(line)) || [];
    if (mark === "|") {
      this.#block ??= { isTable: true, count: 0 };
      this.#block.count += 1;
      return;
    }
    if (this.#block) this.#endBlock();
    if (mark) this.#beginBlock(line.trim(), mark);
    else if (!this.#isLineStart || !RULE.test(line)) this.#addText(line, { isEnd: true });
  }

  #beginBlock(line, mark) {
    const closing = { "$$": "$$", "\\[": "\\]" }[mark];
    const isWhole = closing && line.length > mark.length && line.endsWith(closing);
    if (closing && !isWhole && line.includes(closing, mark.length)) return this.#addText(line, { isEnd: true });
    this.#block = { closing: closing ?? mark, isFormula: Boolean(closing), count: 0 };
    if (isWhole) this.#endBlock();
  }

  /** End a formula at its end or at an empty line, and code at its end. */
  #endBlockAt(line) {
    const { isFormula, closing } = this.#block;
    if (!isFormula && !line.trim().startsWith(closing)) return;
    this.#block.count -= 1;
    this.#endBlock();
  }

  #endBlock() {
    const { isTable, isFormula, count } = this.#block;
    this.#block = null;
    // The header of a table and the line below it are not counted as rows.
    if (isTable) this.#ready += `\n${translate("answer.table", { count: Math.max(0, count - 2) })}\n`;
    else this.#ready += `\n${translate(isFormula ? "answer.formula" : "answer.code", { count })}\n`;
  }

  /** Add a text of a line, or with `isEnd` its last text. A line of a paragraph may continue in the next line. */
  #addText(text, { isEnd = false } = {}) {
    const [prefix, heading, bullet, number] = this.#isLineStart ? PREFIX.exec(text) : [""];
    const plain = toPlainText(parseInline(text.slice(prefix.length), { open: true })).replace(STRAY_MARKS, "");
    if (heading || bullet || number) this.#ready += "\n";
    this.#ready += `${number ? `${number}. ` : ""}${plain}${isEnd ? (heading || !text.trim() ? "\n" : " ") : ""}`;
  }
}

/** Return the position after the last complete sentence; 0 if there is none. */
function findLastEnd(text) {
  let end = 0;
  for (const found of text.matchAll(END)) end = found.index + found[0].length;
  return end;
}
