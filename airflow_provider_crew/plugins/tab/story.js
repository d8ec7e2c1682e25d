// Turns what Airflow returns about a task into what the tab shows. Whatever a crew wrote is text, or is left out.
import { safeAddress } from "./markdown.js";

// More than any time since 1970 in seconds, and than any number of tasks.
const MOST = 1e11;

export const text = (value) => (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));
const object = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
const list = (value) => (Array.isArray(value) ? value : []);
const count = (value) => (Number.isFinite(value) && Math.abs(value) < MOST ? value : null);

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (h) return `${h}h ${String(m).padStart(2, "0")}m`;
  return m ? `${m}m ${String(s).padStart(2, "0")}s` : `${s}s`;
}

const NOT_YET = new Set([null, "scheduled", "queued", "none"]);
const TOLD = new Set(["running", "paused", "unknown", "completed", "failed"]);
const GOING_ON = new Set(["running", "paused", "unknown"]);
const LOOKS = {
  running: { title: "Running", tone: "active" },
  paused: { title: "Waiting for human input", tone: "waiting" },
  unknown: { title: "Unknown to the crew", tone: "waiting" },
  completed: { title: "Completed", tone: "good" },
  failed: { title: "Failed", tone: "bad" },
  uncertain: { title: "Uncertain kickoff", tone: "waiting" },
  stopped: { title: "Stopped waiting", tone: "waiting" },
  started: { title: "Started", tone: "good" },
  waitsForRetry: { title: "Waiting for retry", tone: "waiting" },
  skipped: { title: "Skipped", tone: "quiet" },
  notYet: { title: "Not started yet", tone: "quiet" },
  again: { title: "Starting again", tone: "quiet" },
  ended: { title: "Ended", tone: "quiet" },
};

// The task's own state counts first: its execution may still be running when it has ended.
function standing(seen, progress, kickoffId) {
  const { state } = seen;
  if (NOT_YET.has(state) && (seen.return_value || progress.end)) return "again";
  if (text(seen.return_value) === seen.kickoff_id) return "started";
  if (state === "success" || seen.return_value) return "completed";
  if (state === "skipped" || state === "upstream_failed") return "skipped";
  if (state === "up_for_retry") return "waitsForRetry";
  if (object(progress.end).error === "UncertainKickoff") return "uncertain";
  if (state === "failed" && object(progress.end).cost === "running") return "stopped";
  if (state === "failed" || progress.state === "failed") return "failed";
  if (state === "removed") return "ended";
  if (TOLD.has(progress.state)) return progress.state;
  return kickoffId && !NOT_YET.has(state) ? "running" : "notYet";
}

const NO_REPORT =
  "The task ended without a report, as when its process is killed. The execution may still be running, and billed. See the log before you clear the task.";

function sentence(how, seen, progress, end, kickoffId) {
  if (how === "again") return "This is the end of the previous attempt. It disappears when the next attempt starts.";
  if (how === "waitsForRetry") return "This attempt has failed. Airflow retries the task.";
  if (end) return "";
  switch (how) {
    case "started":
      return "The task has started the execution, and does not wait for its end.";
    case "completed":
      return seen.return_value ? "" : "The task has succeeded, and has pushed no result to XCom.";
    case "failed":
      return kickoffId ? NO_REPORT : "The task has failed without a report. See its log.";
    case "skipped":
      return "The task was skipped. If it started an execution, that may still be running.";
    case "ended":
      return "The task is no longer in its DAG. If it started an execution, that may still be running.";
    case "notYet":
      return "No execution is known yet.";
    case "paused":
      return text(progress.doing) || "The crew continues when a person has answered it.";
    case "unknown":
      return text(progress.doing) || "The crew may be waiting for human input. The task keeps waiting for it.";
    default:
      return text(progress.doing) || "No progress is known yet.";
  }
}

const done = (task) => ({
  state: "done",
  name: text(task.task_id) || "(no name)",
  agent: text(task.agent),
  seconds: count(task.execution_time),
  output: text(task.output),
});

// The task that the crew is at. Of an execution that is no longer watched, it is the one that it was at.
const MARKED = { running: "current", paused: "waiting", unknown: "waiting" };

// What was put out, also where it is not of the type that the task was to return.
const resultOf = (seen) => object(seen.return_value ?? seen.crew_result);

// Finished, current and coming tasks, as far as the service reports them.
function timeline(how, seen, progress) {
  const result = resultOf(seen);
  const told = list(result.tasks ?? progress.tasks).map((task) => done(object(task)));
  if (how === "completed") return { rows: told, untold: result.tasks_complete === false, missing: 0, coming: 0 };
  const [completed, total] = [count(progress.completed), count(progress.total)];
  const rows = [...told];
  if (progress.current_task) {
    const isAt = progress.state === "failed" ? "failed" : (MARKED[how] ?? "left");
    const seconds = how === "running" ? sinceThen(progress.since) : null;
    rows.push({ state: isAt, name: text(progress.current_task), agent: text(progress.current_agent), seconds, output: "" });
  }
  const missing = Math.max(0, (completed ?? 0) - told.length);
  const coming = total === null ? 0 : Math.max(0, total - (completed ?? 0) - (progress.current_task ? 1 : 0));
  return { rows, untold: false, missing, coming: GOING_ON.has(how) ? coming : 0 };
}

const sinceThen = (then) => (count(then) === null ? null : Math.max(0, Date.now() / 1000 - then));

function usage(seen) {
  const spent = { ...object(seen.usage), ...object(resultOf(seen).usage) };
  const own = new Set(["kickoff_id", "try_number"]);
  return Object.entries(spent).filter(([name, value]) => !own.has(name) && Number.isFinite(value));
}

export function story(seen) {
  const progress = object(seen.crew_progress);
  const result = resultOf(seen);
  const kickoffId = text(result.kickoff_id ?? progress.kickoff_id ?? seen.kickoff_id);
  const how = standing(seen, progress, kickoffId);
  const end = how === "completed" || how === "started" || !progress.end ? null : object(progress.end);
  const [completed, total] = [count(progress.completed), count(progress.total)];
  const goesOn = GOING_ON.has(how);
  return {
    ...LOOKS[how],
    goesOn,
    sentence: sentence(how, seen, progress, end, kickoffId),
    since: how === "paused" || how === "unknown" ? sinceThen(progress.since) : null,
    runsFor: goesOn ? sinceThen(progress.started_at) : count(result.execution_time),
    bar: goesOn ? bar(progress.unit, completed, total) : null,
    trouble: goesOn ? text(progress.trouble) : "",
    timeline: timeline(how, seen, progress),
    end,
    kickoffId,
    dashboard: safeAddress(text(seen.crew_dashboard)),
    output: text(result.output),
    outputJson: result.output_json ?? null,
    elsewhere: elsewhere(seen, kickoffId),
    usage: usage(seen),
  };
}

function bar(unit, completed, total) {
  const of = unit === "step" ? "step" : "task";
  if (completed === null) return null;
  if (!total) return { value: null, says: `${completed} ${of}${completed === 1 ? "" : "s"} done` };
  return { value: completed, max: total, says: `${completed} of ${total} ${of}s done` };
}

// A custom XCom backend may leave only where it has put the result.
function elsewhere(seen, kickoffId) {
  const { return_value: left } = seen;
  return typeof left === "string" && seen.isOver && left !== kickoffId ? left : "";
}
