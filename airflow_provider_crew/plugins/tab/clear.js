// Clears failed tasks, after a confirmation that repeats the price.
import { clearFailed, refusal } from "./airflow.js";
import { button, el, h, useEffect, useRef, useState } from "./elements.js";

const REFUSED = { 403: "You have no permission to clear tasks (403). Nothing was cleared." };

export const tasksOf = (count) => `${count.toLocaleString()} task${count === 1 ? "" : "s"}`;

/** tasks: those of one button, as in paths(). price: the sentence to confirm. */
export function Clear({ tasks, price, label }) {
  const [found, setFound] = useState(null); // number of tasks that Airflow would clear
  const [note, setNote] = useState("");
  const isSending = useRef(false);
  const place = useRef(null);
  useEffect(() => void (found !== null && place.current?.focus()), [found]);

  async function send(isDryRun, then) {
    if (isSending.current) return; // a second click, before the page has disabled the button
    isSending.current = true;
    setNote(isDryRun ? "Asking Airflow …" : "Clearing …");
    try {
      const count = await clearFailed(tasks, isDryRun);
      then(count);
    } catch (error) {
      setFound(null);
      setNote(refusal(error, REFUSED) ?? "Airflow has not confirmed it. Reload the page before you clear again.");
    }
    isSending.current = false;
  }

  const ask = () => send(true, (count) => (setFound(count || null), setNote(count ? "" : "No failed task is left to clear.")));
  const clear = () => send(false, (count) => (setFound(null), setNote(`Cleared ${tasksOf(count)}.`)));
  const others = found - tasks.length;
  const confirm = () =>
    el(
      "div",
      "crew-confirm",
      h("p", { ref: place, tabIndex: -1 }, `${price} `, others > 0 && `${tasksOf(others)} after it ${others === 1 ? "is" : "are"} cleared as well.`),
      button(`Clear ${tasksOf(found)}`, clear, { className: "crew-danger" }),
      button("Cancel", () => setFound(null)),
    );
  const status = h("span", { className: "crew-quiet", role: "status" }, note);
  return el("span", "crew-clear", found === null ? button(label, ask) : confirm(), status);
}
