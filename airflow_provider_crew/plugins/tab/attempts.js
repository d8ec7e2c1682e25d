// Earlier attempts of a task, as far as their logs tell: Airflow has deleted their XComs.
import { attempts } from "./airflow.js";
import { Folded, all, duration, el, h, useEffect, useState } from "./elements.js";
import { visible } from "./safe.js";

export const Attempts = ({ task, current, isOpenAtFirst }) =>
  el("div", "crew-section", h(Folded, { title: [`Earlier attempts (${current - 1})`], isOpenAtFirst }, () => h(List, { task, current })));

function List({ task, current }) {
  const [found, setFound] = useState(null);
  useEffect(() => void attempts(task).then(setFound, () => setFound([])), []);
  if (!found?.length) return el("p", "crew-quiet", found ? "Airflow did not return the attempts." : "Reading the logs …");
  const executions = found.flatMap((attempt) => attempt.executions ?? []);
  const started = new Set(executions.filter(({ isStarted }) => isStarted).map(({ id }) => id));
  const isWhole = found.length >= current && found.every((attempt) => attempt.executions !== null);
  // Attempts that wait for the same execution report the same tokens.
  const tokens = new Map(found.flatMap((attempt) => attempt.tokens ?? []));
  const isCounted = isWhole && [...started].every((id) => tokens.has(id));
  const total = [...tokens.values()].reduce((sum, count) => sum + count, 0).toLocaleString();
  const earlier = found.filter(({ number }) => number < current);
  return el(
    "div",
    "",
    el("p", "crew-quiet", `Executions billed, including this attempt: ${isWhole ? "" : "at least "}${started.size}`),
    tokens.size > 0 && el("p", "crew-quiet", `Tokens over all attempts: ${isCounted ? "" : "at least "}${total}`),
    el("ul", "crew-attempts", ...all(earlier.map((attempt) => h(Attempt, attempt)))),
  );
}

function Attempt({ number, state, seconds, executions, place }) {
  const facts = [state ?? "no state", seconds >= 0 && duration(seconds), place && `last seen at ${visible(place)}`].filter(Boolean);
  const each = ({ id, isStarted }) => h("div", null, isStarted ? "Started " : "Reattached to ", h("code", null, visible(id)));
  const unknown = el("div", "crew-quiet", executions ? "Its log names no execution." : "Its log is unreadable.");
  const known = executions?.length ? all(executions.map(each)) : unknown;
  return h("li", null, `Attempt ${number}: ${facts.join(", ")}`, known);
}
