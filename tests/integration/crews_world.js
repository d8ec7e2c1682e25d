// An Airflow for the Crews page in globalThis.world, and a clock that a test moves. A request takes no time, unless it is slow.
globalThis.asked = [];
globalThis.told = {};

// Lets what waits go on. After a few timeouts, each would take four milliseconds.
const { port1, port2 } = new MessageChannel();
const turn = () => new Promise((then) => ((port1.onmessage = then), port2.postMessage(0)));
const timers = new Map();
let now = Date.parse("2026-11-27T12:00:00Z");
let count = 0;

Date.now = () => now;
globalThis.setTimeout = (run, ms = 0) => (timers.set(++count, [now + ms, run]), count);
globalThis.clearTimeout = (id) => timers.delete(id);

// Runs what is due, and all that follows from it.
globalThis.pass = async (seconds) => {
  const until = now + 1000 * seconds;
  for (;;) {
    await turn();
    const [id, at, run] = [...timers].map(([each, timer]) => [each, ...timer]).sort((one, other) => one[1] - other[1])[0] ?? [];
    if (id === undefined || at > until) break;
    timers.delete(id);
    now = Math.max(now, at);
    run();
  }
  now = until;
};

// The rows of the page become visible as soon as they are there.
globalThis.open = async (module, filters, inView) => {
  globalThis.watched?.stop();
  Object.assign(globalThis, { asked: [], told: {}, watched: undefined });
  const { watchCrews } = await import(module);
  globalThis.watched = watchCrews(filters, (news) => {
    Object.assign(told, news);
    for (const { key } of (news.rows ?? []).slice(0, inView)) queueMicrotask(() => watched?.note(key, true));
  });
};

function answer(path, query) {
  const from = Number(query.get("offset"));
  const limit = Math.min(Number(query.get("limit")), world.limit ?? 100);
  const page = (name, all) => [200, { [name]: all.slice(from, from + limit), total_entries: all.length }];
  const refused = Object.entries(world.refused ?? {}).find(([end]) => path.endsWith(end));
  if (refused) return [refused[1], { detail: "Forbidden" }];
  const { instances, xcoms, asking, values } = world;
  if (path.endsWith("/~/taskInstances")) return page("task_instances", instances.filter(({ state }) => query.getAll("state").includes(state)));
  if (path.endsWith("/hitlDetails")) {
    const all = asking.map(({ index, ...about }) => ({ ...about, task_instance: instances[index] }));
    return page("hitl_details", all.filter(({ task_instance: { state } }) => query.getAll("state").includes(state)));
  }
  if (path.endsWith("/~/xcomEntries")) {
    if (world.isRestless && from === 0) for (const each of xcoms) each.timestamp = new Date(now).toISOString();
    const since = Date.parse(query.get("run_after_gte"));
    const pattern = new RegExp(query.get("xcom_key_pattern").replaceAll("_", ".").replaceAll("%", ".*"));
    const isAsked = (key) => pattern.test(key) && query.get("xcom_key_prefix_pattern").split("|").some((each) => key.startsWith(each));
    return page("xcom_entries", xcoms.filter(({ key, run_after: at }) => isAsked(key) && Date.parse(at) >= since));
  }
  if (path.endsWith("/tasks/write")) return [200, { template_fields: ["crew_conn_id", "kickoff_id"] }];
  const [, run, name] = /dagRuns\/([^/]+)\/.*xcomEntries\/?(.*)/.exec(path) ?? [];
  if (run && !name) return [200, { xcom_entries: xcoms.filter((each) => each.run_id === decodeURIComponent(run)) }];
  const value = run && values[decodeURIComponent(run)]?.[name];
  return value === undefined ? [404, {}] : [200, { value }];
}

globalThis.fetch = async (url) => {
  const { pathname, search, searchParams } = new URL(url);
  asked.push([now / 1000, pathname + search]);
  if (world.slow && (pathname.endsWith(world.slow) || search.includes(world.slow))) await new Promise((then) => setTimeout(then, world.lasts ?? 500));
  const [status, body] = answer(pathname, searchParams);
  return { ok: status < 400, status, json: async () => structuredClone(body) };
};
