// What Airflow's public REST API tells of a task instance, asked with the session of whoever looks at the page.
const API = new URL("api/v2/", document.baseURI);
const OVER = new Set(["success", "failed", "skipped", "upstream_failed", "removed"]);
const PAUSE = 4000;
// A task that is over may be cleared. That is asked less often, and costs Airflow one row.
const PAUSE_AFTER_ITS_END = 10000;
const NO_ANSWER = 0;

// What tasks leave behind, besides the progress.
const RESULT = "return_value";
// Where the result is whose output was not of the type asked for.
const MISFIT = "crew_result";
const PROGRESS = "crew_progress";
const LEFT_BEHIND = [RESULT, MISFIT, "kickoff_id", "usage", "crew_dashboard"];

export class NotTold extends Error {
  constructor(status) {
    super(`Airflow answered ${status}`);
    this.status = status;
  }
}

async function get(parts, parameters, signal) {
  const url = new URL(parts.map(encodeURIComponent).join("/"), API);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  let answer;
  try {
    answer = await fetch(url, { credentials: "same-origin", headers: { Accept: "application/json" }, signal });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new NotTold(NO_ANSWER);
  }
  if (!answer.ok) throw new NotTold(answer.status);
  return answer.json();
}

// Depending on its version and on who wrote it, Airflow tells an XCom as a value, as JSON, or as JSON of JSON.
function plain(value) {
  if (typeof value !== "string" || !/^"?\{/.test(value)) return value;
  try {
    return plain(JSON.parse(value));
  } catch {
    return value;
  }
}

// One look at a task instance after the other. What has not changed since the last look is not asked for again.
export class TaskInstance {
  #run;
  #taskId;
  #index;
  #kept = new Map();
  #isOfCrew;
  #last;
  #gone = new AbortController();

  constructor({ dagId, runId, taskId, mapIndex }) {
    this.#run = ["dags", dagId, "dagRuns", runId, "taskInstances", taskId];
    this.#taskId = taskId;
    this.#index = Number(mapIndex ?? -1);
  }

  leave() {
    this.#gone.abort();
  }

  // The state comes first: what a task leaves is there before it is over.
  async look() {
    const own = this.#index < 0 ? this.#run : [...this.#run, String(this.#index)];
    const { state, try_number: tryNumber } = await this.#get(own);
    const isOver = OVER.has(state);
    if (isOver && this.#last?.state === state && this.#last.tryNumber === tryNumber) return this.#last;
    const xcoms = await this.#xcoms();
    this.#isOfCrew ??= await this.#askIfOfCrew();
    this.#last = { ...xcoms, state, tryNumber, isOver, isOfCrew: this.#isOfCrew || PROGRESS in xcoms };
    return this.#last;
  }

  #get(parts, parameters = {}) {
    return get(parts, parameters, this.#gone.signal);
  }

  async #xcoms() {
    const listed = await this.#get([...this.#run, "xcomEntries"], { map_index_filter: this.#index, limit: 100 });
    const times = new Map(listed.xcom_entries.map((entry) => [entry.key, entry.timestamp]));
    const found = {};
    for (const key of [PROGRESS, ...LEFT_BEHIND]) {
      if (!times.has(key)) continue;
      const known = this.#kept.get(key);
      if (known?.time !== times.get(key) || key === PROGRESS) {
        this.#kept.set(key, { time: times.get(key), value: await this.#xcom(key) });
      }
      found[key] = this.#kept.get(key).value;
    }
    return found;
  }

  async #xcom(key) {
    const entry = await this.#get([...this.#run, "xcomEntries", key], { map_index: this.#index });
    return plain(entry.value);
  }

  // Subclasses of our operators have the field as well. A task that is no more in its DAG cannot be told.
  async #askIfOfCrew() {
    const [, dagId] = this.#run;
    try {
      const task = await this.#get(["dags", dagId, "tasks", this.#taskId]);
      return task.template_fields.includes("crew_conn_id");
    } catch (error) {
      if (error.status === 404) return true;
      throw error;
    }
  }
}

// Call back after each look. Nothing is asked while nobody sees the page, nor again of a task that is no crew's.
export function watch(task, tell) {
  const instance = new TaskInstance(task);
  let timer;
  let isLooking = false;
  let left = false;

  async function look() {
    if (isLooking || left) return;
    isLooking = true;
    clearTimeout(timer);
    let goesOn = true;
    let pause = PAUSE;
    try {
      const seen = await instance.look();
      goesOn = seen.isOfCrew;
      if (seen.isOver) pause = PAUSE_AFTER_ITS_END;
      if (!left) tell({ seen });
    } catch (error) {
      // What Airflow refuses, it refuses again. All else may pass.
      goesOn = !(error.status >= 400 && error.status < 500);
      if (!left) tell({ trouble: error });
    }
    isLooking = false;
    if (goesOn && !left && !document.hidden) timer = setTimeout(look, pause);
  }

  const whenSeen = () => (document.hidden ? clearTimeout(timer) : look());
  document.addEventListener("visibilitychange", whenSeen);
  look();
  return () => {
    left = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", whenSeen);
    instance.leave();
  };
}
