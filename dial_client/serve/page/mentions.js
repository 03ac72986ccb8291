// Mentions of resources in a message: "@server:uri", as mentions.py reads them.

import { countInvisible } from "./invisible_characters.js";

/** Return the mention of a resource; null if its URI has invisible characters, or white space, which ends a mention. */
export function toMention(server, uri) {
  const mention = `@${server}:${uri}`;
  return /\s/.test(mention) || countInvisible(mention) ? null : mention;
}
