// Turns the data of a task instance into the contents of the tab. Each text of a crew stays a text, or is left out.
import { batchOf } from "./batch.js";
import { ending, lost, starting } from "./ending.js";
import { questionOf } from "./question.js";
import { list, number, object, safeAddress, text } from "./safe.js";

/**
 * The XCom crew_progress, see docs/xcoms.md. A crew has written some of its texts, and another version may have pushed
 * it, so each value is checked where it is used. Times are Unix timestamps.
 * @typedef {{ clear: string, mark: string, nothing: string, unanswered?: string, answer_by?: number }} Choices
 * @typedef {{ task_id: string, agent: string, output: string, execution_time: number | null }} Task
 * @typedef {{ task_id: string, agent: string, number: number | null, started_at: number, ended_at: number | null }} Step
 * @typedef {{ error: string, event: string, at?: string, reason?: string, misfits?: string[], meta?: string, cost: string, billed: string,
 *   next_step: string, if_retried: string, if_cleared: string, action?: string, choices?: Choices }} End
 * @typedef {{ total: number, ended: number, unread: number, failed: number, uncertain: number, running: number,
 *   waiting: number, earlier: number, tokens: number, estimate: number | null, result_path: string,
 *   reasons: { status: string, reason: string, count: number, keys: string[] }[] }} Batch
 * @typedef {{ version: number, kickoff_id: string, state: string, doing: string, unit: string, completed: number | null,
 *   total: number | null, current_task: string | null, current_agent: string | null, started_at: number | null,
 *   since: number, polled_at: number, stale_after: number, deadline: number | null, human_input: boolean, trouble: string,
 *   steps: Step[], tasks: Task[], end: End | null, choices?: Choices, batch?: Batch, if_lost?: End, try_number: number }} Progress
 */

const MOST_COMING = 10;

// Without visible direction characters: an output may be copied.
const rawText = (value) => (typeof value === "string" ? value : text(value));

const QUEUED = new Set(["scheduled", "queued"]);
const GOING_ON = new Set(["running", "paused", "unknown", "answered"]);
const ENDED = new Set(["completed", "failed"]);
const LOOKS = {
  running: { title: "Running", tone: "active" },
  paused: { title: "Waiting for human input", tone: "waiting" },
  unknown: { title: "May be waiting for human input", tone: "waiting" },
  answered: { title: "Answered", tone: "active", sentence: "The next polls show whether the crew continues." },
  completed: { title: "Completed", tone: "good" },
  failed: { title: "Failed", tone: "bad" },
  uncertain: { title: "Uncertain kickoff", tone: "waiting" },
  stopped: { title: "Stopped waiting", tone: "waiting" },
  cancelled: { title: "Cancelled", tone: "gray" },
  cancelling: { title: "Being cancelled", tone: "gray" },
  waitsForRetry: { title: "Waiting for retry", tone: "waiting" },
  started: { title: "Started", tone: "good", sentence: "The task does not wait for the end of the execution." },
  skipped: { title: "Skipped", tone: "gray" },
  starting: { title: "Starting", tone: "active", sentence: "No execution is known yet." },
  notYet: { title: "Not started yet", tone: "quiet", sentence: "No execution is known yet." },
  again: { title: "Starting again", tone: "quiet", sentence: "What is shown is the previous attempt." },
  removed: { title: "Removed", tone: "quiet", sentence: "The task is no longer in its DAG. Its execution may be running." },
};

// Airflow counts an attempt when it schedules it, but not when it schedules a task that goes on after a deferral. That
// may have ended since its state was read.
const resumes = ({ state, tryNumber }, { try_number: number }) => QUEUED.has(state) && number === tryNumber;
const isBetween = (seen, progress) => [null, "none"].includes(seen.state) || (QUEUED.has(seen.state) && !resumes(seen, progress));

// Which of the LOOKS applies, in the tab and on the page: first what is known of the execution, then the task's state.
function standing(seen, progress, end, kickoffId, question) {
  const { state } = seen;
  if (isBetween(seen, progress)) return seen.return_value || kickoffId || progress.end ? "again" : "notYet";
  if (question?.form || question?.isComing) return "paused";
  if ((question?.isNew || question?.isLate) && !seen.hasEnded && state !== "up_for_retry") return "answered";
  if (kickoffId && seen.return_value === kickoffId) return "started";
  if (seen.isBeingCancelled) return "cancelling";
  if (end?.isCancelled && state !== "up_for_retry") return "cancelled";
  if (seen.return_value || (state === "success" && !GOING_ON.has(progress.state) && !progress.end)) return "completed";
  if (state === "success") return "stopped";
  if (state === "skipped" || state === "upstream_failed") return "skipped";
  if (state === "up_for_retry") return "waitsForRetry";
  if (end?.isUncertain) return "uncertain";
  if (state === "failed" && end.mayBeRunning) return "stopped";
  if (state === "failed" || progress.state === "failed") return "failed";
  if (state === "removed") return "removed";
  if (question?.isWithCrew && (progress.state === "paused" || progress.state === "unknown")) return "answered";
  if (progress.state === "unknown" && progress.human_input) return "paused";
  if (GOING_ON.has(progress.state) || progress.state === "completed") return progress.state;
  return kickoffId ? "running" : "starting";
}

export function story(seen) {
  const progress = object(seen.crew_progress);
  // The task does not return a result that does not match output_type.
  const result = object(seen.return_value ?? seen.crew_result);
  const usage = { ...object(seen.usage), ...object(result.usage) };
  const kickoffId = text(result.kickoff_id ?? (progress.kickoff_id || (seen.kickoff_id ?? seen.record?.kickoff_id)));
  const end = ending(seen, progress);
  const question = questionOf(seen);
  const how = standing(seen, progress, end, kickoffId, question);
  const goesOn = GOING_ON.has(how);
  const batch = batchOf(progress, goesOn, { ...seen.task, connId: seen.connId });
  // Executions of a batch may be running although it succeeded.
  const shown = (how === "completed" && !batch) || how === "started" || goesOn ? null : end;
  const waits = how === "paused" || how === "unknown" ? waiting(progress, question) : null;
  const isResumed = goesOn && resumes(seen, progress);
  const unknown = isResumed ? "" : "No progress is known yet.";
  const doing = batch ? batch.note : how === "running" && (text(progress.doing) || unknown);
  return {
    how,
    ...LOOKS[how],
    sentence: [doing ? `${doing}${isResumed ? "." : ""}` : LOOKS[how].sentence, isResumed && "The task waits for a worker."].filter(Boolean).join(" "),
    ...(how === "completed" ? batch?.look : {}),
    ...(how === "answered" && question.isNew && { sentence: "The task is about to send the answer." }),
    ...(how === "answered" && question.isLate && { sentence: question.isLate }),
    goesOn,
    end: shown,
    choices: isBetween(seen, progress) || how === "cancelling" ? [] : choices(seen, seen.state === "running" && !seen.crew_progress ? starting(seen) : goesOn ? progress : (shown ?? lost(seen)), waits),
    polledAt: goesOn ? number(progress.polled_at) : null,
    staleAfter: number(progress.stale_after) ?? 0,
    endedAt: shown ? number(seen.endedAt) : null,
    startedAt: goesOn ? number(progress.started_at) : null,
    took: number(result.execution_time) ?? (ENDED.has(progress.state) ? span(progress.started_at, progress.since) : null),
    bar: how === "running" || (goesOn && progress.total) ? (batch ?? { bar: bar(progress) }).bar : null,
    trouble: how === "running" || how === "unknown" ? text(progress.trouble) : "",
    batch,
    waiting: waits,
    question,
    ...timeline(how, progress, result),
    kickoffId,
    dashboard: safeAddress(typeof seen.crew_dashboard === "string" ? seen.crew_dashboard : ""),
    output: rawText(result.output),
    outputJson: result.output_json ?? undefined,
    // A custom XCom backend may return only the place where it keeps the result.
    elsewhere: how === "completed" && typeof seen.return_value === "string" ? text(seen.return_value) : "",
    tokens: number(usage.total_tokens) ?? batch?.tokens,
    usage: Object.entries(usage).filter(([name, value]) => name !== "try_number" && number(value) !== null),
    attempt: seen.isOfBatch ? 1 : seen.tryNumber, // the log of a batch names no execution
    // As for a retry during an outage: only the log of an earlier attempt tells where the crew was.
    isLost: how === "running" && text(progress.trouble) !== "" && !progress.doing,
    inputs: seen.isOfBatch ? [] : Object.entries(object(seen.inputs)).map(([name, value]) => [text(name), text(typeof value === "string" ? value : (JSON.stringify(value) ?? ""))]),
    // A task that has failed may be cleared here, unless a person has to look for its execution first.
    failed: seen.state === "failed" && seen.task && how !== "cancelling" && how !== "uncertain" ? [seen.task] : null,
  };
}

export const CHOICES = { clear: "If you clear the task", mark: "If you mark it as failed", nothing: "If you do nothing" };

// Effect and cost of each choice. A task that has ended cannot be marked as failed, and a retry is the next step. If the
// crew waits for a person, doing nothing ends at the deadline. No process cancels the execution of a task in a queue.
function choices({ state, hasEnded }, { choices: told }, waits) {
  const mark = QUEUED.has(state) && object(told).mark && "an execution that is still running is not cancelled, and is billed";
  const effects = { ...object(told), ...(mark && { mark }), ...(waits?.deadline && { nothing: waits.unanswered }) };
  const without = { mark: hasEnded, nothing: state === "up_for_retry" || state === "success" };
  const known = Object.entries(CHOICES).filter(([key]) => text(effects[key]) && !without[key]);
  return known.map(([key, title]) => [title, `${text(effects[key])}.`, ...(key === "nothing" && waits?.deadline ? [waits] : [])]);
}

const span = (start, end) => (number(start) === null || number(end) === null ? null : Math.max(0, end - start));

function bar({ unit, completed, total }) {
  const [value, max] = [number(completed), number(total)];
  const kind = unit === "step" ? "step" : "task";
  const done = max ? `${value} of ${max} ${kind}s done` : `${value} ${kind}${value === 1 ? "" : "s"} done`;
  return { value: max ? value : null, max, says: value === null ? "" : done };
}

// A draft is the output of the task that waits, or else the newest one.
function waiting({ current_task: task, since, deadline, state, human_input: isExpected, tasks, choices: told }, question) {
  const outputs = list(tasks).map(object).filter((each) => text(each.output));
  const draft = outputs.findLast((each) => each.task_id === task) ?? outputs.at(-1);
  const { unanswered: effect, answer_by: limit } = object(told);
  // The task cancels no execution that is unknown. Before the limit for an answer is known, no other counts.
  const otherwise = isExpected && effect !== "" ? "the execution may be running and billed" : "";
  const unanswered = state === "paused" || number(limit) ? text(effect) : otherwise;
  const title = draft?.task_id === task ? "Draft" : `Latest output of ${text(draft?.task_id)}`;
  return {
    // An unknown execution may be past the task at which it was last seen, and its question may be about another.
    place: task && !(state === "unknown" && (question?.form || question?.isComing)) ? `${state === "unknown" ? ", last seen" : ""} at ${text(task)}` : "",
    since: question?.form?.openedAt ?? number(since),
    isElsewhere: !question?.form && !question?.isComing,
    deadline: unanswered ? (number(limit) ?? number(deadline)) : null,
    isAnsweredLater: number(limit) !== null,
    unanswered,
    draft: draft && !question?.form && { title, output: rawText(draft.output) },
  };
}

const row = (state, name, agent = "", seconds = null, output = "") => ({ state, name, agent, seconds, output });
const finished = (task) =>
  row("done", text(task.task_id) || "(no name)", text(task.agent), number(task.execution_time), rawText(task.output));

const MARKS = { running: "current", paused: "waiting", unknown: "waiting", answered: "waiting" };

// Finished, current and coming tasks: as the crew reports them, with the times at which polls saw a change.
function timeline(how, progress, result) {
  const told = list(result.tasks ?? progress.tasks).map((task) => finished(object(task)));
  const isComplete = how === "completed" || result.tasks !== undefined;
  const steps = list(progress.steps).map(object);
  if (!steps.length && progress.current_task) {
    steps.push({ task_id: progress.current_task, agent: progress.current_agent, started_at: progress.since });
  }
  const [isFailed, goesOn] = [progress.state === "failed" && how !== "cancelled", GOING_ON.has(how)];
  const unmatched = new Set(told);
  let from = number(progress.started_at); // of the kickoff, and then of each step
  const seen = steps.map((step) => {
    const match = told.find((each) => unmatched.has(each) && each.name === text(step.task_id));
    unmatched.delete(match);
    const shown = match ?? finished(step);
    const end = step.ended_at ?? (progress.end ? progress.since : null);
    shown.agent ||= text(step.agent);
    // The crew reports how long it worked. What is left of the time was spent in a queue, or waiting.
    const [began, to] = [number(step.started_at), number(end ?? (goesOn ? progress.polled_at : null))];
    const worked = end === null || shown.seconds === null ? began : to - shown.seconds;
    shown.times = from === null || to === null ? null : [from, Math.min(to, Math.max(from, worked)), Math.max(from, to)];
    from = to;
    shown.seconds ??= span(step.started_at, end);
    // A failed execution may have finished the task at which the last poll saw it.
    if (!isComplete && !step.ended_at && progress.current_task && !(isFailed && match)) {
      shown.state = isFailed ? "failed" : (MARKS[how] ?? "left");
      shown.startedAt = goesOn ? number(step.started_at) : null;
    }
    return shown;
  });
  if (isComplete) return { rows: told, missing: 0, coming: [], more: 0, isPartial: result.tasks_complete === false };
  const rows = [...unmatched, ...seen];
  const done = rows.filter(({ state }) => state === "done").length;
  if (isFailed && done && done === rows.length) rows.push(row("failed", "The next task"));
  const [completed, total] = [number(progress.completed) ?? 0, number(progress.total) ?? 0];
  const known = Math.max(done, completed) + rows.length - done;
  const left = goesOn ? Math.max(0, total - known) : 0;
  const unit = progress.unit === "step" ? "Step" : "Task";
  const coming = Array.from({ length: Math.min(left, MOST_COMING) }, (_, at) => row("coming", `${unit} ${known + at + 1}`));
  return { rows, missing: Math.max(0, completed - done), coming, more: left - coming.length, isPartial: false };
}
