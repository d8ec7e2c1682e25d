// The rows of a batch: how many have ended, how fast, and why some of them failed.
import { all, duration, el, h } from "./elements.js";
import { Copy } from "./output.js";
import { list, number, object, text } from "./safe.js";

// Ended rows without which a rate is a guess.
const ENOUGH = 10;

const natural = (value) => Math.max(0, number(value) ?? 0);
const rowsOf = (count) => `${count.toLocaleString()} row${count === 1 ? "" : "s"}`;

// The pilot, or the limit that has ended the batch.
function noteOf({ pilot, stopped_by: limit, needed, total: all }, waiting, goesOn) {
  const [total, ended, failed] = ["total", "ended", "failed"].map((name) => natural(object(pilot)[name]));
  if (goesOn) return total ? `Pilot: ${ended.toLocaleString()} of ${rowsOf(total)} ended; ${(natural(all) - total).toLocaleString()} wait for it` : "";
  if (limit === "pilot") return `The pilot failed: ${failed.toLocaleString()} of ${rowsOf(total)}.`;
  const others = `The other ${rowsOf(waiting)} need about ${natural(needed).toLocaleString()} tokens.`;
  return limit === "max_tokens" ? `Stopped at max_tokens. ${waiting && natural(needed) ? others : ""}`.trim() : "";
}

// Null for a task that runs one execution.
export function batchOf({ batch, started_at: startedAt, polled_at: polledAt, end, state }, goesOn, task) {
  if (batch === undefined) return null;
  const told = object(batch);
  const count = (name) => natural(told[name]);
  const [total, ended, failed] = [count("total"), count("ended") + count("unread"), count("failed") + count("uncertain")];
  const [news, minutes] = [ended - count("earlier"), (polledAt - startedAt) / 60];
  // The first rows end about together, so only later ones show the rate.
  const rate = goesOn && minutes > 0 && news >= Math.max(ENOUGH, count("running")) ? news / minutes : 0;
  const succeeded = Math.max(0, count("ended") - failed);
  const names = { failed: "failed", uncertain: "uncertain", running: "running", waiting: goesOn ? "waiting" : "not started" };
  const others = Object.entries(names).filter(([key]) => count(key)).map(([key, name]) => [name, count(key).toLocaleString()]);
  const left = ["time left", `about ${duration((60 * Math.max(0, total - ended)) / rate)}`];
  const pace = rate ? [["rows a minute", rate.toFixed(rate < 10 ? 1 : 0)], left] : [];
  const estimate = count("estimate") && ended < total ? [["tokens of all rows", `about ${count("estimate").toLocaleString()}`]] : [];
  const executions = count("executions") > ended ? [["executions", count("executions").toLocaleString()]] : [];
  const reasons = list(told.reasons).map(object).map(reasonOf);
  return {
    bar: total ? { value: ended, max: total, says: `${ended.toLocaleString()} of ${rowsOf(total)} ended` } : null,
    facts: [["succeeded", succeeded.toLocaleString()], ...others, ...executions, ...pace, ...estimate],
    tokens: count("tokens") || undefined,
    note: noteOf(told, count("waiting"), goesOn),
    path: text(told.result_path),
    failedPath: failed && (end || state === "completed") ? text(told.failed_path) : "",
    adopt: count("uncertain") && !goesOn ? adopting(object(task)) : "",
    reasons,
    more: Math.max(0, failed - reasons.reduce((sum, { rows }) => sum + rows, 0)),
    // A task succeeds if no more rows failed than max_failed allows, which may be all of them.
    look: succeeded >= total ? {} : succeeded ? { title: "Partly completed", tone: "waiting" } : { title: "No row succeeded", tone: "bad" },
  };
}

// For a shell.
const quoted = (value) => (/^[\w.:+-]+$/.test(value) ? value : `'${text(value).replaceAll("'", "'\\''")}'`);
const adopting = ({ dagId, runId, taskId, mapIndex, connId }) =>
  `python -m airflow_provider_crew adopt ${[dagId, runId, taskId].map((each) => quoted(each ?? "")).join(" ")} KICKOFF_ID${Number(mapIndex ?? -1) < 0 ? "" : ` --map-index ${Number(mapIndex)}`} --conn-id ${connId ? quoted(connId) : "CONN_ID"} --row=KEY`;

function reasonOf({ status, reason, count, keys }) {
  const [rows, first] = [natural(count), list(keys).map(text)];
  const which = `${first.join(", ")}${rows > first.length ? " …" : ""}`;
  return { title: [status !== "error" && text(status).replaceAll("_", " "), text(reason)].filter(Boolean).join(": "), rows, which };
}

export function Results({ of: { path, reasons, more, failedPath, adopt } }) {
  const files = [h("span", null, "Results in ", h("code", null, path)), h(Copy, { text: path, label: "result path", isIcon: true })];
  const item = ({ title, rows, which }) => h("li", null, title, el("span", "crew-quiet", ` · ${rowsOf(rows)} · ${which}`));
  const drawn = reasons.length > 0 && el("ul", "crew-reasons", ...all(reasons.map(item)));
  const where = failedPath ? ["All failed rows with their inputs: ", h("code", null, failedPath)] : ["At its end, the batch lists all failed rows with their inputs in a file that its manifest names."];
  const note = el("p", "crew-quiet", more > 0 && `${rowsOf(more)} failed for other reasons. `, ...where);
  const doubt = "The executions of uncertain rows may be running. Search the crew's dashboard for each row's key in meta. If an execution is there, adopt it before you clear the task: ";
  return el("div", "crew-results", path && el("p", "crew-id", ...files), drawn, (drawn || failedPath) && note, adopt && el("p", "", doubt, h("code", null, adopt)));
}
