// Reads the crews of all DAGs that the viewer may see: lists first, and details only of rows in view.
import { ENDED, PROGRESS, QUESTION, REASON, get, getOrNull, hasNoReport, isFinal, kickoffRecord, paths, plain } from "./airflow.js";
import { object } from "./safe.js";

// Requests within any minute. Details leave some of them to the lists.
const MOST = 60;
const FOR_LISTS = 10;
const MINUTE = 60000;
const TURN = 500;
const DETAILS_AT_ONCE = 4;
// Airflow returns at most this many entries by default, or fewer.
const PAGE = 100;
const MOST_PAGES = 10;
const MOST_READ = 1000;
// Between two looks. The next one is later if the lists of this one have many pages, so they use less than half of them.
const PAUSE = 5000;
const PAUSE_EACH = 2500;
// Of so many looks, one reads all lists. The others read those whose tasks have changed.
const LOOKS = 8;
const DAY = 86400000;
const ACTIVE = ["running", "deferred", "up_for_retry", "up_for_reschedule"];
// Between two processes. Only those that have started are read.
const QUEUED = ["scheduled", "queued", "restarting"];
const HAS_FAILED = new Set(["failed", "up_for_retry"]);
// Names of the lists in Airflow's responses.
const PAGES = { taskInstances: "task_instances", hitlDetails: "hitl_details" };
// Airflow 3.1 and 3.2 know no alternatives.
const BOTH = "crew_%es";
const LONG_AGO = "2000-01-01T00:00:00Z";

// These outlive a change of the filters. Details are those of an attempt.
const sent = [];
const queues = new Map();
const details = new Map();
const fields = new Map(); // of the tasks that run a crew
const ends = new Map(); // by the key that all tasks with the same end share

// Waits until the page is visible and the limit allows another request. Those with the same reserve take turns.
export function turn(signal, reserve = 0) {
  const mine = (queues.get(reserve) ?? Promise.resolve()).then(async () => {
    for (;;) {
      signal.throwIfAborted();
      while (sent[0] <= Date.now() - MINUTE) sent.shift();
      if (!document.hidden && sent.length < MOST - reserve) return void sent.push(Date.now());
      await new Promise((then) => setTimeout(then, TURN));
    }
  });
  queues.set(reserve, mine.catch(() => {}));
  return mine;
}

const keyOf = (of) => JSON.stringify([of.dag_id, of.dag_run_id ?? of.run_id, of.task_id, of.map_index, of.region_id, of.region_index]);
const attemptOf = (of) => `${keyOf(of)} ${of.try_number}`;
const whereOf = (of) => ({ dagId: of.dag_id, runId: of.dag_run_id, taskId: of.task_id, mapIndex: of.map_index, regionId: of.region_id, regionIndex: of.region_index });
const taskOf = (of) => JSON.stringify([of.dag_id, of.task_id]);

// Calls back after each change. Returns a function that stops, and one that takes note of a row in view.
export function watchCrews({ dag, days, withCompleted }, tell) {
  const stopped = new AbortController();
  const { signal } = stopped;
  const [pushedAt, askedAt, reasons, withoutReason] = [new Map(), new Map(), new Map(), new Set()];
  const [inView, reading, failed] = [new Set(), new Set(), new Set()];
  const isCut = {}; // by list
  const lists = { active: new Map(), ended: new Map(), asking: new Map() };
  let [rows, isListed, isWhole, trouble, requests, looks, isGrouped, seesRequests, timer] = [new Map(), false, false, undefined, 0, 0, false, true];

  // Whoever sees no request would take each question for one that has none yet.
  const asksOrNull = async (...request) => (await getOrNull(...request)) ?? void (seesRequests = false);

  async function pages(path, name, parameters, take, ask = get) {
    for (let [page, offset] = [0, 0]; page < MOST_PAGES; page += 1) {
      await turn(signal);
      requests += 1;
      const listed = await ask(["dags", dag || "~", "dagRuns", "~", ...path], { ...parameters, limit: PAGE, offset }, signal);
      const found = listed?.[name] ?? [];
      offset += found.length;
      if (take(found) || !(offset < listed?.total_entries)) return true;
    }
    return false;
  }

  // After the first look, only what is new. Airflow 3.1 and 3.2 do not order XComs.
  async function readTimes(run_after_gte) {
    const wasWhole = isWhole;
    isWhole = false;
    const keys = { xcom_key_prefix_pattern: `${PROGRESS}|${QUESTION}`, xcom_key_pattern: BOTH, order_by: "-timestamp", run_after_gte };
    const timesOf = ({ key }) => (key === QUESTION ? askedAt : pushedAt);
    const isAll = await pages(["taskInstances", "~", "xcomEntries"], "xcom_entries", keys, (found) => {
      const last = found.at(-1);
      const isOrdered = found.every((each, at) => at === 0 || each.timestamp <= found[at - 1].timestamp);
      const isKnown = last && timesOf(last).get(keyOf(last)) === last.timestamp;
      for (const each of found) {
        timesOf(each).set(keyOf(each), each.timestamp);
        if (!fields.has(taskOf(each))) fields.set(taskOf(each), {});
      }
      readDetails();
      return wasWhole && isOrdered && isKnown;
    });
    isWhole = isListed = true;
    return isAll;
  }

  async function look() {
    const [before, isFirst, isDue] = [requests, looks === 0, looks === 1 || looks % LOOKS === 0];
    let pause = PAUSE;
    looks += 1;
    failed.clear();
    const since = new Date(Date.now() - days * DAY).toISOString();
    const ended = { end_date_gte: since, order_by: "-end_date" };
    // Instances by their key. The first look shows each page. The others show all lists at once: a task that leaves one
    // is in another.
    const known = isFirst ? lists : {};
    const list = async (name, ...all) => {
      const found = new Map();
      const add = (read) => {
        for (const each of read) {
          const instance = each.task_instance ?? each;
          // Airflow deletes those of older runs, and returns none before 3.3.
          if ("crew_conn_id" in object(instance.rendered_fields)) fields.set(taskOf(instance), instance.rendered_fields);
          found.set(keyOf(instance), each);
        }
        if (isFirst) show({ ...lists, [name]: new Map([...lists[name], ...found]) });
      };
      const isWhole = await Promise.all(all.map(([path, parameters, ask]) => pages([path], PAGES[path], parameters, add, ask)));
      known[name] = found;
      isCut[name] = !isWhole.every(Boolean);
    };
    const read = {
      active: () => list("active", ["taskInstances", { state: [...ACTIVE, ...QUEUED], start_date_gte: LONG_AGO, order_by: "start_date" }]),
      ended: () => list("ended", ...["failed", ...(withCompleted ? ["success"] : [])].map((state) => ["taskInstances", { state, ...ended }])),
      // An answer is about to be sent until a poll sees the crew continue.
      asking: () => list("asking", ["hitlDetails", { state: [...ACTIVE, ...QUEUED], order_by: "-created_at" }, asksOrNull]),
      keys: () => readKeys(since, new Map()),
      times: async () => void (isCut.times = !(await readTimes(since))),
    };
    const times = new Map(pushedAt);
    const readAll = async (names) => {
      const settled = await Promise.allSettled(names.map((name) => read[name]()));
      for (const { status, reason } of settled) if (status === "rejected") throw reason;
    };
    try {
      await readAll(isFirst ? Object.keys(read) : ["active", "times"]);
      pause = Math.max(PAUSE, (requests - before) * PAUSE_EACH);
      // The list that a task enters is read after the one that it leaves, so the second look repeats the first.
      const mine = [...lists.active].filter(([key]) => rows.has(key));
      const hasLeft = isDue || mine.some(([key]) => !known.active.has(key));
      // A process opens a request, and resumes for the answer. A trigger closes a request if a poll brings news.
      const hasMoved = ([key, { state, queued_when: at }]) => known.active.get(key)?.state !== state || known.active.get(key).queued_when !== at || (lists.asking.has(key) && times.get(key) !== pushedAt.get(key));
      if (!isFirst && (hasLeft || mine.some(hasMoved))) await readAll([...(hasLeft ? ["ended"] : []), "asking"]);
      Object.assign(lists, known);
      trouble = undefined;
      tell({ answeredAt: Date.now() / 1000 });
      show(lists);
      await readReasons(since);
    } catch (error) {
      if (signal.aborted) return;
      trouble = error;
      looks = 0; // all lists may have changed
      tell({ trouble });
      if (isFinal(error)) return stopped.abort();
    }
    timer = setTimeout(look, isFirst ? PAUSE : pause);
  }

  // The keys of the reasons, until those of these tasks are known.
  async function readKeys(run_after_gte, needed) {
    const oldest = [...needed.values()].map(({ instance }) => instance.start_date).sort()[0];
    // Airflow 3.1 and 3.2 know only the second name.
    const keys = { xcom_key_prefix_pattern: REASON, xcom_key_pattern: REASON, order_by: "-timestamp", run_after_gte };
    await pages(["taskInstances", "~", "xcomEntries"], "xcom_entries", keys, (found) => {
      for (const each of found) {
        reasons.set(keyOf(each), { id: each.key, at: each.timestamp });
        needed.delete(keyOf(each));
      }
      return needed.size ? found.at(-1)?.timestamp < oldest : isGrouped;
    });
    isGrouped = true;
  }

  // Why tasks failed: their keys from a list, and what each key means from one task.
  async function readReasons(since) {
    const isNew = ([key, { instance }]) => HAS_FAILED.has(instance.state) && !reasonOf(key, instance) && !withoutReason.has(attemptOf(instance));
    const needed = new Map([...rows].filter(isNew));
    if (needed.size) await readKeys(since, needed);
    for (const { instance } of needed.values()) withoutReason.add(attemptOf(instance));
    const unread = new Map([...rows].map(([key, { instance }]) => [reasonOf(key, instance), instance]).filter(([id]) => id && !ends.has(id)));
    await Promise.all([...unread].map(async ([id, instance]) => ends.set(id, object(await detail(instance, id)))));
    if (needed.size || unread.size) show();
  }

  // That of an earlier attempt began before.
  const reasonOf = (key, { state, start_date: start }) => HAS_FAILED.has(state) && reasons.get(key)?.at > start && reasons.get(key).id;

  function show(known = lists) {
    const found = new Map([...known.ended, ...[...known.asking].map(([key, each]) => [key, each.task_instance]), ...known.active]);
    rows = new Map();
    for (const [key, instance] of found) {
      const request = ENDED.has(instance.state) ? undefined : known.asking.get(key);
      const mayShow = isGrouped || !HAS_FAILED.has(instance.state); // they would move
      if (mayShow && fields.has(taskOf(instance))) rows.set(key, { instance, request });
    }
    if (signal.aborted) return;
    tell({ rows: [...rows].map(([key, row]) => ({ key, ...row, ...knownOf(key, row) })), isCut: Object.values(isCut).includes(true), trouble });
    readDetails();
  }

  // What is known of a row. All tasks with the same reason have the same end, until their own is read.
  function knownOf(key, row) {
    const { found } = details.get(attemptOf(row.instance)) ?? {};
    const id = reasonOf(key, row.instance);
    const shared = ends.has(id) && { [PROGRESS]: { end: ends.get(id) }, usage: { total_tokens: ends.get(id).tokens } };
    return { reason: id, isRead: Boolean(shared) || isRead(key, row), seen: seenOf(row, fields.get(taskOf(row.instance)), { ...shared, ...found, ...(!seesRequests && { [QUESTION]: undefined }) }) };
  }

  // Names of the details that a row needs, each with its current version.
  function wantedOf(key, instance) {
    const { state } = instance;
    const { found = {} } = details.get(attemptOf(instance)) ?? {};
    const hasEnded = ENDED.has(state);
    const has = (name) => hasEnded && found.keys?.includes(name);
    const wanted = [
      // The progress of an older run is not in the list.
      [PROGRESS, pushedAt.get(key) ?? (hasEnded ? state : Math.floor(Date.now() / MINUTE))],
      !hasEnded && askedAt.has(key) && [QUESTION, askedAt.get(key)],
      hasEnded && ["keys", state],
      has("usage") && ["usage", state],
      // The result of a crew may be large. A task that only starts one returns its ID.
      has("return_value") && !has("usage") && !has(PROGRESS) && ["return_value", state],
      hasNoReport(state, found[PROGRESS]) && ["record", state],
    ];
    return wanted.filter(Boolean);
  }

  const isRead = (key, { instance }) => wantedOf(key, instance).every(([name]) => name in (details.get(attemptOf(instance))?.versions ?? {}));

  // A row that has not been read comes before those that have changed, which take turns.
  function next() {
    let changed = null;
    for (const key of inView) {
      const instance = rows.get(key)?.instance;
      if (!instance || (!isListed && !pushedAt.has(key))) continue; // its time is about to come
      const attempt = attemptOf(instance);
      if (reading.has(attempt) || failed.has(attempt)) continue;
      const { versions = {} } = details.get(attempt) ?? {};
      const missing = wantedOf(key, instance).find(([name, version]) => versions[name] !== version);
      if (!missing) continue;
      const wanted = { key, instance, attempt, name: missing[0], version: missing[1] };
      if (!isRead(key, { instance })) return wanted;
      changed ??= wanted;
    }
    if (changed && inView.delete(changed.key)) inView.add(changed.key);
    return changed;
  }

  function readDetails() {
    for (let wanted; reading.size < DETAILS_AT_ONCE && (wanted = next()); ) read(wanted);
  }

  async function read({ instance, attempt, name, version }) {
    reading.add(attempt);
    try {
      const value = await detail(instance, name);
      const { found, versions } = details.get(attempt) ?? {};
      details.delete(attempt);
      details.set(attempt, { found: { ...found, [name]: value }, versions: { ...versions, [name]: version } });
      if (details.size > MOST_READ) details.delete(details.keys().next().value); // the one read longest ago
    } catch {
      failed.add(attempt); // until the next look
    }
    reading.delete(attempt);
    show();
  }

  // Undefined if Airflow has no such detail, or does not show it to this user. It is read again when it changes.
  async function detail(instance, name) {
    const path = paths(whereOf(instance));
    const [entries, region] = [[...path.task, "xcomEntries"], path.region];
    await turn(signal, FOR_LISTS);
    if (name === "record") return kickoffRecord(instance.try_number, path, signal);
    if (name !== "keys") return plain((await getOrNull([...entries, name], { map_index: path.index, ...region }, signal))?.value);
    const listed = await getOrNull(entries, { map_index_filter: path.index, limit: PAGE, ...region }, signal);
    return listed?.xcom_entries.map((each) => each.key);
  }

  look();
  return {
    stop() {
      stopped.abort();
      clearTimeout(timer);
    },
    note(key, isInView) {
      if (isInView) inView.add(key);
      else inView.delete(key);
      readDetails();
    },
  };
}

// The facts of the tab, as far as the page reads them. The subject of a request has the title of the crew's draft.
function seenOf({ instance, request }, fields, { keys, usage, return_value: returned, record, [PROGRESS]: progress, [QUESTION]: box } = {}) {
  const { state, try_number: tryNumber, end_date: endDate } = instance;
  const hasEnded = ENDED.has(state);
  const isOfBatch = "result_path" in fields || object(progress).batch !== undefined;
  const result = hasEnded && keys?.includes("return_value") ? { kickoff_id: returned, return_value: returned ?? {} } : {};
  const hasRecord = "crew_conn_id" in fields && !isOfBatch && !("kickoff_id" in fields);
  const known = { [PROGRESS]: progress, usage, record: hasRecord ? record : undefined };
  const { value: id } = object(request?.params?.question);
  const asked = id === undefined ? { [QUESTION]: box } : { [QUESTION]: box ?? {}, request, answered: { kickoff_id: object(progress).kickoff_id, task_id: id, draft: request.subject } };
  return { ...known, ...asked, ...result, task: whereOf(instance), isSensor: "kickoff_id" in fields, isOfBatch, state, tryNumber, hasEnded, retryAt: null, endedAt: Date.parse(endDate) / 1000 };
}
