// Reads a task instance through Airflow's public REST API, with the session of the user who sees the page.
import { visible } from "./safe.js";

const API = new URL("api/v2/", document.baseURI);
export const ENDED = new Set(["success", "failed", "skipped", "upstream_failed", "removed"]);
const PAUSE = 4000;
const MOST_LOGS = 20;

export const PROGRESS = "crew_progress";
export const REASON = "crew_reason_";
const RECORD = "crew_kickoff";
// Only tasks with answer_in_airflow have the first, and the second is in the task state store.
export const QUESTION = "crew_question";
const ANSWER = "crew_answer";
// The time of a deferral whose trigger cancels the execution if someone marks the task.
const DEFERRAL = "crew_deferral";
// A trigger needs seconds to report a cancellation, but Airflow 3.4 stores no XCom of a task that has ended.
const CANCELLING = 120;
// crew_result is a result that does not match output_type.
const XCOMS = [PROGRESS, "return_value", "crew_result", "kickoff_id", "usage", "crew_dashboard", DEFERRAL, QUESTION];
// Messages in an attempt's log: which execution it waited for, and at which task the crew was.
const EXECUTION = /^(Started|Reattached to) execution (\S{1,200}?)[.,]?(?:\s|$)/;
const SENDING = "Sending the kickoff.";
const PLACE = /^Crew: ((?:task|step) \d(?:(?!, took ).){0,200})$/;
const TOKENS = /^Crew: total: (?:.{1,40}, )?([\d,]{1,40}) tokens$/;

async function request(parts, parameters, options) {
  const url = new URL(parts.map(encodeURIComponent).join("/"), API);
  for (const [name, value] of Object.entries(parameters)) for (const each of [value].flat()) url.searchParams.append(name, each);
  const headers = { Accept: "application/json", ...(options.body && { "Content-Type": "application/json" }) };
  const response = await fetch(url, { credentials: "same-origin", headers, ...options }).catch(() => ({ ok: false, status: 0 }));
  if (response.ok) return response.json();
  const { detail } = (await Promise.resolve().then(() => response.json()).catch(() => null)) ?? {};
  throw Object.assign(new Error(`Airflow returned ${response.status}`), { status: response.status, detail });
}

export const get = (parts, parameters = {}, signal = undefined) => request(parts, parameters, { signal });

// Whether Airflow would reject the same request again. A proxy may limit the rate (429), and time out (408).
export const isFinal = ({ status }) => status >= 400 && status < 500 && status !== 408 && status !== 429;

// What a reader learns of a request that Airflow would reject again. Null for any other.
export function refusal({ status, detail }, known) {
  if (status === 401) return "Airflow asks you to log in again. Reload the page.";
  return known[status] ?? (isFinal({ status }) ? `Airflow returned ${status}. ${typeof detail === "string" ? visible(detail) : ""}` : null);
}

// Null if Airflow has no such thing, or does not show it to this user.
export const getOrNull = (...request) =>
  get(...request).catch((error) => {
    if (isFinal(error)) return null;
    throw error;
  });

// Depending on its version and on the writer, Airflow returns an XCom as a value, as JSON, or as JSON of JSON.
export function plain(value) {
  if (typeof value !== "string" || !/^"?\{/.test(value)) return value;
  try {
    return plain(JSON.parse(value));
  } catch {
    return value;
  }
}

// Airflow 3.4 identifies an iteration of a task loop by its region, which it gives to mapped tasks as well.
export function paths({ dagId, runId, taskId, mapIndex, regionId, regionIndex }) {
  const index = Number(mapIndex ?? -1);
  const run = ["dags", dagId, "dagRuns", runId];
  const task = [...run, "taskInstances", taskId];
  const instance = index < 0 ? task : [...task, String(index)];
  const region = regionId === undefined ? {} : { region_id: regionId, region_index: regionIndex };
  return { index, region, run, task, instance, definition: ["dags", dagId, "tasks", taskId] };
}

// Whether only the kickoff record tells how the task ended.
export const hasNoReport = (state, progress) => (state === "failed" || state === "up_for_retry") && !progress?.end && !progress?.if_lost;

// Undefined if this Airflow has no task state store, or does not show it to this user.
async function stateStore({ index, region, task }, signal) {
  const listed = await getOrNull([...task, "state-store"], { map_index: index, limit: 100, ...region }, signal);
  return listed?.task_state_store && new Map(listed.task_state_store.map(({ key, value }) => [key, plain(value)]));
}

// The kickoff record. Null if the task has started nothing. Undefined without a store, and if clearing the task may have
// deleted the record (Airflow 3.4).
const recordIn = (store, tryNumber) => store && (store.get(RECORD) ?? (tryNumber > 1 ? undefined : null));
export const kickoffRecord = async (tryNumber, ...where) => recordIn(await stateStore(...where), tryNumber);

// Returns a function that reads the task instance, and asks only for what may have changed since its last call.
function reader(task, signal) {
  const { index, region, instance, definition, ...path } = paths(task);
  const kept = new Map();
  let [defined, last, version] = [];

  // Of a task that is deferred, nothing else changes without its state or an XCom. Nothing is found if none has.
  async function xcoms(state, tryNumber) {
    const listed = await get([...path.task, "xcomEntries"], { map_index_filter: index, limit: 100, ...region }, signal);
    const times = new Map(listed.xcom_entries.map((entry) => [entry.key, entry.timestamp]));
    const [before, found] = [version, {}];
    version = undefined; // until all of it has been read
    const now = JSON.stringify([state, tryNumber, ...times]);
    if (state === "deferred" && now === before) return { now };
    for (const key of XCOMS.filter((each) => times.has(each))) {
      if (kept.get(key)?.time !== times.get(key)) {
        const { value } = await get([...path.task, "xcomEntries", key], { map_index: index, ...region }, signal);
        kept.set(key, { time: times.get(key), value: plain(value) });
      }
      found[key] = kept.get(key).value;
    }
    return { now, found };
  }

  // The request under Required Actions, which may have been answered.
  async function requiredAction() {
    const listed = await getOrNull([...path.run, "hitlDetails"], { task_id: task.taskId, map_index: index }, signal);
    return listed?.hitl_details[0];
  }

  // The state is read first: a task pushes its XComs before it ends.
  return async function read() {
    const { state, try_number: tryNumber, end_date: endDate, rendered_fields: fields } = await get(instance, region, signal);
    const hasEnded = ENDED.has(state);
    // The kickoff record changes a moment after the task has succeeded.
    const isSettled = !last?.isBeingCancelled && (state !== "success" || !last?.record || last.record.delivered);
    if (hasEnded && last?.state === state && last.tryNumber === tryNumber && isSettled) return last;
    const { now, found } = await xcoms(state, tryNumber);
    if (!found) {
      version = now;
      return last;
    }
    // A task that is no longer in its DAG has no definition, and may have run a crew.
    defined ??= (await getOrNull(definition, {}, signal)) ?? { template_fields: ["crew_conn_id"] };
    const isOperator = defined.template_fields.includes("crew_conn_id"); // an agent has a record for each call
    const isOfCrew = isOperator || PROGRESS in found;
    const isSensor = defined.template_fields.includes("kickoff_id");
    const isOfBatch = defined.template_fields.includes("result_path") || found[PROGRESS]?.batch !== undefined;
    const isStarting = state === "running" && !found[PROGRESS];
    const hasRecord = isOperator && !isOfBatch && !isSensor && (hasNoReport(state, found[PROGRESS]) || isStarting || state === "success");
    const isAsked = QUESTION in found;
    const store = hasRecord || isAsked ? await stateStore({ index, region, ...path }, signal) : undefined;
    const record = hasRecord ? recordIn(store, tryNumber) : undefined;
    const required = isAsked && !hasEnded ? await requiredAction() : undefined;
    const retryAt = state === "up_for_retry" ? retryTime(endDate, defined) : null;
    const { end, polled_at: polledAt } = found[PROGRESS] ?? {};
    const isPolled = !end && polledAt > Number(found[DEFERRAL] ?? NaN); // otherwise its trigger learns of no mark
    const isBeingCancelled = hasEnded && isPolled && Date.now() - Date.parse(endDate) < 1000 * CANCELLING;
    const kind = { isOfCrew, isSensor, isOfBatch, isBeingCancelled };
    const facts = { record, retryAt, answered: store?.get(ANSWER), request: required };
    last = { ...found, ...kind, ...facts, inputs: plain(fields?.inputs), connId: fields?.crew_conn_id, task, state, tryNumber, hasEnded, endedAt: Date.parse(endDate) / 1000 };
    version = now;
    return last;
  };
}

// Null if Airflow computes the delay from the number of attempts.
function retryTime(endDate, { retry_delay: delay, retry_exponential_backoff: backoff }) {
  const time = Date.parse(endDate) / 1000 + (delay?.days ?? 0) * 86400 + delay?.seconds;
  return backoff || !Number.isFinite(time) ? null : time;
}

// Answers the request under Required Actions that is open. Airflow names no question, and rejects a second answer.
export function answer(task, option, parameters) {
  const { index, region, task: path } = paths(task);
  const body = JSON.stringify({ chosen_options: [option], params_input: parameters });
  return request([...path, index, "hitlDetails"], region, { method: "PATCH", body });
}

// Clears these tasks if they have failed, and those after them that have failed as well or could not run. Returns how many.
export async function clearFailed(tasks, isDryRun) {
  const runs = new Map();
  for (const { dagId, runId, taskId, mapIndex } of tasks) {
    const run = JSON.stringify([dagId, runId]);
    runs.set(run, [...(runs.get(run) ?? []), Number(mapIndex ?? -1) < 0 ? taskId : [taskId, Number(mapIndex)]]);
  }
  let count = 0;
  for (const [run, ids] of runs) {
    const [dagId, runId] = JSON.parse(run);
    const known = { dry_run: isDryRun, dag_run_id: runId, task_ids: ids, only_failed: true, include_downstream: true, reset_dag_runs: true };
    const post = (more) => request(["dags", dagId, "clearTaskInstances"], {}, { method: "POST", body: JSON.stringify({ ...known, ...more }) });
    // Airflow 3.4 deletes the state of a task otherwise. Earlier versions keep it, and reject the option.
    const cleared = await post({ keep_task_state: true }).catch((error) => (error.status === 422 ? post({}) : Promise.reject(error)));
    count += cleared.task_instances.length;
  }
  return count;
}

// The newest attempts that Airflow has kept. Their logs have the executions, which are null for an unreadable log.
export async function attempts(task) {
  const { index, region, task: path, instance } = paths(task);
  const { task_instances: tries } = await get([...instance, "tries"], region);
  const read = async ({ try_number: number, state, start_date: start, end_date: end }) => {
    const log = await get([...path, "logs", number], { map_index: index, ...region }).catch(() => null);
    const lines = log && log.content.map((line) => String(line?.event ?? line));
    const found = lines && lines.map((line) => EXECUTION.exec(line)).filter(Boolean);
    const executions = found && found.map(([, verb, id]) => ({ id, isStarted: verb === "Started" }));
    const isUncertain = found?.length === 0 && lines.some((line) => line.startsWith(SENDING));
    // An attempt has one execution, and logs its tokens at the end.
    const counts = lines?.map((line) => TOKENS.exec(line)?.[1]).filter(Boolean) ?? [];
    const tokens = executions?.length ? counts.slice(-1).map((count) => [executions.at(-1).id, Number(count.replaceAll(",", ""))]) : [];
    const place = lines?.map((line) => PLACE.exec(line)?.[1]).findLast(Boolean) ?? "";
    const reason = log?.content.map((line) => line?.error_detail?.[0]?.exc_value).findLast(Boolean) ?? "";
    const times = { startedAt: Date.parse(start) / 1000, seconds: (Date.parse(end) - Date.parse(start)) / 1000 };
    return { number, state, ...times, executions, isUncertain, tokens, place, reason: String(reason).split("\n")[0] };
  };
  return Promise.all(tries.slice(-MOST_LOGS).map(read));
}

// Calls back after each look. Stops while the page is hidden, and for a task that runs no crew.
export function watch(task, tell) {
  const stopped = new AbortController();
  const read = reader(task, stopped.signal);
  let timer;
  let isLooking = false;

  async function look() {
    if (isLooking || stopped.signal.aborted) return;
    isLooking = true;
    clearTimeout(timer);
    let goesOn = true;
    try {
      const seen = await read();
      goesOn = seen.isOfCrew;
      if (!stopped.signal.aborted) tell({ seen });
    } catch (error) {
      goesOn = !isFinal(error);
      if (!stopped.signal.aborted) tell({ trouble: error });
    }
    isLooking = false;
    if (goesOn && !stopped.signal.aborted && !document.hidden) timer = setTimeout(look, PAUSE);
  }

  const lookIfSeen = () => (document.hidden ? clearTimeout(timer) : look());
  document.addEventListener("visibilitychange", lookIfSeen);
  look();
  return () => {
    stopped.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", lookIfSeen);
  };
}
