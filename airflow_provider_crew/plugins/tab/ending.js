// How a task ended without a result: the reason, the cost, and the next step as it applies now.
import { object, text } from "./safe.js";

const COSTS = {
  none: "none; nothing was started.",
  running: "billed; the execution is running, or waits for human input.",
  ended: "billed; the execution has ended.",
  unknown: "unknown; an execution may have started.",
};
const MAY_BE_RUNNING = "billed; the execution may still be running.";
const STARTS_AGAIN = "starts a new execution, which is billed again";
const WAITS = "waits for the same execution";
const READS = "reads the result of the same execution, at no cost";

const WAIT_WITH_SENSOR = "To wait for the execution, use CrewExecutionSensor with its kickoff ID.";

export function ending(seen, progress, kickoffId) {
  if (progress.end) return withNext(seen, reported(object(progress.end), kickoffId));
  if (seen.state === "failed" || seen.state === "up_for_retry") return withNext(seen, unreported(seen, kickoffId));
  if (seen.state !== "success" || progress.state === "completed") return null;
  const reason = "The task was marked as successful while it waited.";
  return withNext(seen, { reason, cost: MAY_BE_RUNNING, next: WAIT_WITH_SENSOR });
}

// The next step: Airflow's retry, or what the reader may do. None if the next attempt is about to start.
function withNext({ state, retryAt }, { retry = "", next, misfits = [], ...facts }) {
  if (state === "up_for_retry" && retry) return { ...facts, misfits, retry, retryAt, next: "" };
  return { ...facts, misfits, retry: "", next: state === "failed" || state === "success" || state === "skipped" ? next : "" };
}

function reported(end, kickoffId) {
  const misfits = Array.isArray(end.misfits) ? end.misfits.map(text) : [];
  const event = withoutId(text(end.event), kickoffId);
  const at = misfits.length ? event.indexOf(`: ${misfits[0]}`) : -1;
  return {
    reason: at < 0 ? event : `${event.slice(0, at)}:`,
    misfits: at < 0 ? [] : misfits,
    cost: Object.hasOwn(COSTS, end.cost) ? COSTS[end.cost] : "",
    retry: retryOf(end),
    next: text(end.next_step),
    isUncertain: end.error === "UncertainKickoff",
    mayBeRunning: end.cost === "running",
  };
}

// The header of the tab shows the kickoff ID.
const withoutId = (event, id) =>
  id ? event.replaceAll(`Execution ${id}`, "The execution").replaceAll(`execution ${id}`, "the execution") : event;

function retryOf({ error, cost }) {
  if (["ExecutionFailed", "ExecutionCancelled", "InvalidOutput"].includes(error)) return STARTS_AGAIN;
  return new Map([["none", "starts an execution"], ["running", WAITS], ["ended", READS]]).get(cost) ?? "";
}

// No report: the process was killed, or the task was marked as failed. The kickoff record has the facts.
function unreported({ record, isSensor }, kickoffId) {
  const reason = "The task ended without a report, as when its process is killed or the task is marked as failed.";
  const facts = (cost, retry, others) => ({ reason, cost, retry, next: `Clearing the task ${retry}.`, ...others });
  const mayBeRunning = { mayBeRunning: true };
  if (isSensor) return facts(MAY_BE_RUNNING, WAITS, mayBeRunning);
  if (record?.end) return facts(COSTS.ended, record.end === "completed" ? READS : STARTS_AGAIN);
  const step = `Clearing the task ${WAITS}. On Airflow 3.4, keep the task state.`;
  if (record?.kickoff_id) return facts(MAY_BE_RUNNING, WAITS, { ...mayBeRunning, next: step });
  if (record) {
    const retry = "reports the uncertain kickoff, and starts nothing";
    const next = `Search the crew's dashboard for the execution. Clearing the task ${retry}.`;
    return facts(COSTS.unknown, retry, { reason: "The task ended while it sent the kickoff.", isUncertain: true, next });
  }
  if (kickoffId) {
    const warning = "Without durable execution, clearing the task starts another one, which is billed as well.";
    return facts(MAY_BE_RUNNING, "", { ...mayBeRunning, next: `${WAIT_WITH_SENSOR} ${warning}` });
  }
  if (record === null) return facts("none; no kickoff is recorded.", "starts an execution");
  return facts(COSTS.unknown, "", { next: "Check the log and the crew's dashboard before you clear the task." });
}
