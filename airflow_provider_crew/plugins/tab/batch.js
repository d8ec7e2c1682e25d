// The rows of a batch: how many have ended, how fast, and which of them failed.
import { Folded, all, duration, el, h } from "./elements.js";
import { Copy } from "./output.js";
import { list, number, object, text } from "./safe.js";

// Ended rows without which a rate is a guess.
const ENOUGH = 10;
const MOST_OPEN = 20;

// Null for a task that runs one execution.
export function batchOf({ batch, started_at: startedAt, polled_at: polledAt }, goesOn) {
  if (batch === undefined) return null;
  const told = object(batch);
  const count = (name) => Math.max(0, number(told[name]) ?? 0);
  const [total, ended, failed] = [count("total"), count("ended") + count("unread"), count("failed")];
  const [news, minutes] = [ended - count("earlier"), (polledAt - startedAt) / 60];
  // The first rows end about together, so only later ones show the rate.
  const rate = goesOn && minutes > 0 && news >= Math.max(ENOUGH, count("running")) ? news / minutes : 0;
  const others = ["failed", "uncertain", "running", "waiting"].filter(count).map((name) => [name, count(name).toLocaleString()]);
  const left = ["time left", `about ${duration((60 * Math.max(0, total - ended)) / rate)}`];
  const pace = rate ? [["rows a minute", rate.toFixed(rate < 10 ? 1 : 0)], left] : [];
  const rows = list(told.rows).map((row) => ["key", "status", "reason"].map((name) => text(object(row)[name])));
  return {
    bar: total ? { value: ended, max: total, says: `${ended.toLocaleString()} of ${total.toLocaleString()} rows have ended` } : null,
    facts: [["succeeded", Math.max(0, count("ended") - failed).toLocaleString()], ...others, ...pace],
    tokens: count("tokens") || undefined,
    path: text(told.result_path),
    rows,
    more: Math.max(0, failed - rows.length),
  };
}

export function Results({ of: { path, rows, more } }) {
  const files = [h("span", null, "Results in ", h("code", null, path)), h(Copy, { text: path, label: "result path", isIcon: true })];
  const item = ([key, status, reason]) => h("li", null, h("code", null, key), ` ${status}: ${reason}`);
  const drawn = () => el("ul", "crew-attempts", ...all(rows.map(item)));
  const failed = [
    h(Folded, { key: "rows", title: ["Failed rows"], isOpenAtFirst: rows.length <= MOST_OPEN }, drawn),
    el("p", "crew-quiet", more > 0 && `${more.toLocaleString()} more rows failed. `, "When a batch has ended, failed.jsonl has all of them, with their inputs."),
  ];
  return el("div", "crew-results", path && el("p", "crew-id", ...files), ...(rows.length ? failed : []));
}
