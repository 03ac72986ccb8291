// The commands that undo and summarize messages. Each reports what it did: messages disappear, although none is lost.

import { showToast } from "./dialogs.js";
import { translate } from "./language.js";

/**
 * Return the commands for the open conversation. `transcript()` is its transcript; `act(change)` changes it, shows an
 * error, and resolves to the result, undefined after an error.
 */
export function listHistoryCommands({ transcript, act }) {
  const command = (name, key, change, [done, nothing]) => ({
    name,
    detail: translate(`command.${key}`),
    run: async () => {
      const { id, isRunning } = transcript();
      if (id === null) return showToast(translate("history.new"));
      if (isRunning) return showToast(translate("history.running"));
      const result = await act(change);
      if (result !== undefined) showToast(translate(`history.${result ? done : nothing}`));
    },
  });
  return [
    command("undo", "undo", (found) => found.undo(), ["undone", "not_undone"]),
    command("redo", "redo", (found) => found.restore("undo"), ["redone", "not_redone"]),
    command("compact", "compact", (found) => found.compact(), ["compacted", "not_compacted"]),
    command("compact undo", "compact_undo", (found) => found.restore("compact"), ["whole", "not_whole"]),
  ];
}
