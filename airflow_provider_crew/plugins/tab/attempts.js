// Earlier attempts of a task, as far as their logs tell: Airflow has deleted their XComs.
import { attempts } from "./airflow.js";
import { Folded, all, duration, el, h, useEffect, useState } from "./elements.js";
import { visible } from "./safe.js";

// The attempts of a task from its second one on, or undefined while they are being read.
export function useAttempts(task, { attempt, kickoffId, goesOn }) {
  const [found, setFound] = useState();
  useEffect(() => void (attempt > 1 && attempts(task).then(setFound, () => setFound([]))), [attempt, kickoffId, goesOn]);
  return attempt > 1 ? found : undefined;
}

// What all attempts together have cost, for the header.
export function costOf(found = [], current) {
  const started = new Set(found.flatMap(({ executions }) => (executions ?? []).filter(({ isStarted }) => isStarted).map(({ id }) => id)));
  // Attempts that wait for the same execution report the same tokens.
  const tokens = new Map(found.flatMap((attempt) => attempt.tokens ?? []));
  const isWhole = found.length >= current && found.every(({ executions, isUncertain }) => executions !== null && !isUncertain);
  const isCounted = isWhole && [...started].every((id) => tokens.has(id));
  const total = [...tokens.values()].reduce((sum, count) => sum + count, 0).toLocaleString();
  if (!started.size) return ""; // a sensor
  const billed = `${isWhole ? "" : "at least "}${started.size} execution${started.size === 1 ? "" : "s"}`;
  return tokens.size ? `${billed}, ${isCounted ? "" : "at least "}${total} tokens` : billed;
}

const HEADS = ["Attempt", "State", "Reason", "Executions", "Tokens", "Started", "Took"];

export function Attempts({ found, current, isOpenAtFirst }) {
  const missing = el("p", "crew-quiet", found ? "Airflow did not return the attempts." : "Reading the logs …");
  const head = h("thead", null, h("tr", null, ...HEADS.map((each) => h("th", { key: each, scope: "col" }, each))));
  const table = () => h("table", null, head, h("tbody", null, all([...found].reverse().map((attempt) => h(Attempt, attempt)))));
  const drawn = () => (found?.length ? el("div", "crew-attempts", table()) : missing);
  return el("div", "crew-section", h(Folded, { title: [`Attempts (${current})`], isOpenAtFirst }, drawn));
}

function Attempt({ number, state, startedAt, seconds, executions, tokens, place, reason }) {
  const each = ({ id, isStarted }) => h("div", null, isStarted ? "Started " : "Reattached to ", h("code", null, visible(id)));
  const unknown = executions ? "Its log mentions none." : "Its log is unreadable.";
  const at = place && `last seen at ${visible(place)}`;
  const cells = [
    number,
    state ?? "no state",
    [reason && visible(reason), at].filter(Boolean).join("; "),
    executions?.length ? all(executions.map(each)) : unknown,
    tokens?.length ? tokens[0][1].toLocaleString() : "",
    startedAt >= 0 ? new Date(1000 * startedAt).toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) : "",
    seconds >= 0 ? duration(seconds) : "",
  ];
  return h("tr", null, ...cells.map((cell, at) => h("td", { key: HEADS[at] }, cell)));
}
