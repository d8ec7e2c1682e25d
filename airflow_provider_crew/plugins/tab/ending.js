// How a task ended without a result. Its sentences come from the task, or from its kickoff record if it has pushed none.
import { object, text } from "./safe.js";

const REPEATED = 60;
// A character that was made visible. Python has replaced it in the event.
const SHOWN_CODE = /⟨U\+[\dA-F]{4,6}⟩/g;
// A task that has recorded no kickoff on its first attempt has started nothing.
const NOT_STARTED = { cost: "none", billed: "none; no kickoff is recorded.", if_retried: "starts an execution (billed)", next_step: "Clearing the task starts an execution (billed)." };
// Airflow has no store or does not show it, or it may have deleted the record when the task was cleared.
const NOTHING_KNOWN = { cost: "unknown", billed: "unknown; an execution may have started.", next_step: "Check the log and the crew's dashboard before you clear the task." };
const BEING_CANCELLED = { cost: "running", billed: "billed; the execution may still be running.", event: "Airflow ended the task while it waited. The execution is being cancelled." };

const NOTHING = "the task continues, and the execution is billed once";
const STARTS = { clear: "it starts an execution (billed)", mark: "nothing is billed, unless the kickoff is sent first", nothing: NOTHING };
const MAY_START = { clear: "it starts an execution (billed). This attempt may have started another", mark: "an execution may be running and billed", nothing: NOTHING };
const OF_SENSOR = { ...MAY_START, clear: "it waits for the same execution, at no further cost" };

// What a click does until the task pushes its own sentences. The record may be that of an earlier attempt.
export function starting({ record, isSensor, isOfBatch, tryNumber }) {
  const { if_lost: known, kickoff_id: id, try_number: sentBy } = object(record);
  if (isOfBatch) return {};
  if (!known) return { choices: isSensor ? OF_SENSOR : record === null ? STARTS : MAY_START };
  const { clear, mark } = object(known.choices);
  // With cancel_on_kill, a mark cancels the execution.
  return { choices: { clear, mark: id ? "" : mark, nothing: sentBy === tryNumber ? NOTHING : `it ${text(known.if_retried)}` } };
}

export function ending(seen, progress) {
  if (progress.end) return shown(seen, object(progress.end));
  if (seen.isBeingCancelled) return shown(seen, BEING_CANCELLED);
  const { record, state } = seen;
  const isLost = state === "failed" || state === "up_for_retry";
  if (!isLost && (state !== "success" || progress.state === "completed")) return null;
  const known = { ...(record === null && !progress.kickoff_id && !seen.isOfBatch ? NOT_STARTED : NOTHING_KNOWN), ...lost(seen) };
  if (isLost && record?.kickoff_id === null) return shown(seen, { ...known, error: "UncertainKickoff", event: "The task ended while it sent the kickoff." });
  const mark = seen.crew_deferral ? text(object(progress.choices).mark) : "";
  const killed = `The task's process was killed or lost, or a user marked the task as failed.${mark && ` If a user marked it, ${mark}.`}`;
  return shown(seen, { ...known, event: isLost ? killed : "The task was marked as successful while it waited." });
}

// The sentences of a task that leaves no report: those of its kickoff record if that was read, or those it has pushed.
export const lost = ({ record, crew_progress: progress }) => object(object(record).if_lost ?? object(progress).if_lost);

// What stands before and after the part of an event from one text to another. Null if they are not there.
function around(event, first, last) {
  const at = event.indexOf(first);
  const end = at < 0 ? -1 : event.indexOf(last, at);
  return end < 0 ? null : [event.slice(0, at).trim(), event.slice(end + last.length).replace(/^[.; ]+/, ""), event.slice(at, end)];
}

// Without what the tab shows in lines of its own. An event that repeats it in other characters is left whole.
function without(event, lines, misfits) {
  if (misfits.length) return around(event, misfits[0], misfits.at(-1));
  const repeated = lines.replace(SHOWN_CODE, "\ufffd").split(/\s+/).filter(Boolean).join(" ").replace(/[. ]+$/, "");
  if (!repeated) return null;
  // It has a long reason only up to an ellipsis.
  const cut = around(event, repeated.slice(0, REPEATED), "…");
  return around(event, repeated, repeated) ?? (cut && repeated.startsWith(cut[2]) ? cut : null);
}

// The next step: Airflow's retry, or what the reader may do. Empty if the next attempt is about to start.
function shown({ state, retryAt }, end) {
  const misfits = Array.isArray(end.misfits) ? end.misfits.map(text) : [];
  const event = text(end.event);
  const lines = text(end.reason);
  const parts = without(event, lines, misfits);
  const isRetried = state === "up_for_retry" && text(end.if_retried);
  // A choice of the reader says the same.
  const clearing = `Clearing the task ${text(object(end.choices).clear).replace(/^it /, "")}.`;
  const hasEnded = state === "failed" || state === "success" || state === "skipped";
  return {
    event,
    reason: parts ? parts[0] : event,
    lines,
    rest: parts ? parts[1] : "",
    misfits: parts ? misfits : [],
    at: text(end.at),
    cost: text(end.billed),
    retry: isRetried ? text(end.if_retried) : "",
    retryAt,
    next: hasEnded && !isRetried && end.next_step !== clearing ? text(end.next_step) : "",
    choices: object(end.choices),
    meta: end.error === "UncertainKickoff" ? text(end.meta) : "",
    isUncertain: end.error === "UncertainKickoff",
    isCancelled: end.error === "ExecutionCancelled",
    mayBeRunning: end.cost === "running",
  };
}
