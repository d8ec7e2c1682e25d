// The page "Crews": what waits for people, what failed and what runs, over all DAGs that the viewer may see.
import { Clear, tasksOf } from "./clear.js";
import { watchCrews } from "./crews.js";
import { OrRaw, Seen, Since, all, button, el, h, useEffect, useRef, useState } from "./elements.js";
import { number, object, text } from "./safe.js";
import { CHOICES, story } from "./story.js";
import { Choices, Ending, Section, facts, late, messageOf, quiet } from "./tab.js";

const SHOWN = 50;
const PERIODS = [["1", "24 hours"], ["7", "7 days"], ["30", "30 days"]];
const GROUPS = {
  waiting: { title: "Waiting for people", how: ["paused", "unknown"] },
  failed: { title: "Failed or uncertain", states: ["failed", "up_for_retry"] },
  running: { title: "Running", how: ["running", "starting", "answered", "again", "notYet"] },
  completed: { title: "Completed", how: ["completed", "started", "skipped"], states: ["success"] },
};

const chosen = () => {
  const query = new URLSearchParams(location.search);
  const [group, days] = [query.get("state"), query.get("days")];
  return { dag: query.get("dag") ?? "", group: Object.hasOwn(GROUPS, group) ? group : "", days: PERIODS.some(([each]) => each === days) ? days : "1" };
};

function keep({ dag, group, days }) {
  const query = new URLSearchParams({ ...(dag && { dag }), ...(group && { state: group }), ...(days !== "1" && { days }) });
  history.pushState(history.state, "", `${location.pathname}?${query}`.replace(/\?$/, ""));
}

export function CrewsPage() {
  const [filters, setFilters] = useState(chosen);
  const [{ rows, isCut, trouble, answeredAt }, setNews] = useState({});
  const dags = useRef(new Set());
  const watched = useRef(null);
  const { dag, group, days } = filters;
  const withCompleted = group === "completed";
  const choose = (change) => {
    setFilters({ ...filters, ...change });
    keep({ ...filters, ...change });
  };
  useEffect(() => {
    const back = () => setFilters(chosen());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  useEffect(() => {
    setNews({});
    watched.current = watchCrews({ dag, days, withCompleted }, (news) => setNews((before) => ({ ...before, ...news })));
    return () => watched.current.stop();
  }, [dag, days, withCompleted]);
  const crews = (rows ?? []).map(crewOf);
  for (const each of [dag, ...crews.map((crew) => crew.dag)]) if (each) dags.current.add(each);
  const since = answeredAt && [" Last answer ", h(Since, { key: "since", time: answeredAt }), " ago."];
  const outage = trouble && [messageOf(trouble, "the task instances and XComs that this page shows"), since];
  return el(
    "div",
    "crew-tab crew-page",
    el("h1", "", "Crews"),
    // Not redrawn with its clock, so that a screen reader reads it once.
    h("p", { className: outage ? "crew-outage" : "crew-quiet", role: "status" }, outage || (rows ? "" : "Loading …")),
    h(Filters, { filters, choose, dags: [...dags.current].sort(), crews }),
    isCut && quiet(`Airflow has more tasks than this page reads. ${dag ? "Some crews are missing." : "Choose a DAG to see all of its crews."}`),
    rows && h(Crews, { crews, filters, onSeen: (key, isInView) => watched.current.note(key, isInView) }),
  );
}

// What a row shows until its details are read: the state of the task, not that of its execution.
const LISTED = {
  failed: { title: "Task failed", tone: "bad" },
  up_for_retry: { title: "Waiting for retry", tone: "waiting" },
  success: { title: "Task succeeded", tone: "good" },
  waiting: { title: "Waiting for human input", tone: "waiting" },
};

export function crewOf({ key, instance, request, isRead, seen, reason }) {
  const { dag_id: dag, dag_run_id: run, task_id: task, map_index: index, region_id: region, start_date: start, state } = instance;
  const told = isRead ? storyOrNull(seen) : null;
  const find = (name, value) => Object.keys(GROUPS).find((each) => GROUPS[each][name]?.includes(value));
  const known = told ? (find("how", told.how) ?? "failed") : (find("states", state) ?? "running");
  const isOpen = request !== undefined && !request.response_received && state === "deferred";
  const group = isOpen ? "waiting" : known;
  const look = told ?? LISTED[isOpen ? "waiting" : state] ?? { title: state === "deferred" || state === "running" ? "Running" : "…", tone: "quiet" };
  const path = ["dags", dag, "runs", run, "tasks", task, ...(index < 0 ? [] : ["mapped", String(index)]), "plugin", "crew"];
  const address = new URL(path.map(encodeURIComponent).join("/"), document.baseURI);
  if (region) address.search = new URLSearchParams({ region_id: region, region_index: instance.region_index });
  const which = index < 0 ? "" : ` [${text(instance.rendered_map_index ?? String(index))}]`;
  const [startedAt, endedAt] = [start, instance.end_date].map((each) => number(Date.parse(each) / 1000));
  const same = reason && `${reason} ${state}`;
  return { key, dag, task, told, look, group, same, end: seen?.crew_progress?.end, subject: isOpen ? text(request.subject) : "", href: address.href, name: `${text(task)}${which}`, run: text(run), startedAt, endedAt, tokens: told?.tokens ?? 0, instance };
}

// A row that cannot be read hides no other.
function storyOrNull(seen) {
  try {
    return story(seen);
  } catch {
    return null;
  }
}

function Filters({ filters: { dag, group, days }, choose, dags, crews }) {
  const select = (label, value, options, onChange) => {
    const choices = all(options.map(([each, title]) => h("option", { key: each, value: each }, title)));
    return h("label", null, `${label} `, h("select", { value, onChange: (event) => onChange(event.target.value) }, choices));
  };
  const count = (each) => crews.filter((crew) => crew.group === each).length;
  // Completed tasks are read only if they are wanted.
  const title = (each) => (each === "completed" && group !== each ? GROUPS[each].title : `${GROUPS[each].title} (${count(each).toLocaleString()})`);
  const states = Object.keys(GROUPS).map((each) => button(title(each), () => choose({ group: each === group ? "" : each }), { "aria-pressed": each === group }));
  return el(
    "div",
    "crew-line",
    h("div", { className: "crew-views", role: "group", "aria-label": "State" }, all(states)),
    select("DAG", dag, [["", "all"], ...dags.map((each) => [each, text(each)])], (value) => choose({ dag: value })),
    select("Ended in the last", days, PERIODS, (value) => choose({ days: value })),
  );
}

function Crews({ crews, filters, onSeen }) {
  const { group } = filters;
  const shown = Object.keys(GROUPS).filter((each) => (group ? each === group : each !== "completed"));
  const ordered = [...crews].sort((one, other) => (one.told?.waiting?.since ?? 0) - (other.told?.waiting?.since ?? 0));
  const sections = shown.map((each) => [each, ordered.filter((crew) => crew.group === each)]).filter(([, those]) => those.length);
  return [
    h(Tokens, { key: "tokens", crews: crews.filter((crew) => shown.includes(crew.group)) }),
    !sections.length && h(Nothing, { key: "nothing", filters }),
    ...sections.map(([each, those]) => h(Group, { key: each, group: each, crews: those, onSeen })),
  ];
}

export function Tokens({ crews }) {
  const known = crews.filter(({ tokens }) => tokens > 0);
  const sum = known.reduce((total, crew) => total + crew.tokens, 0);
  return sum > 0 && facts([[`Tokens of ${known.length.toLocaleString()} of the ${crews.length.toLocaleString()} tasks below`, sum.toLocaleString()]]);
}

// Tasks that failed for the same reason are one item, in the order of their newest.
export function itemsOf(crews) {
  const alike = new Map();
  for (const crew of crews) alike.set(crew.same || crew.key, [...(alike.get(crew.same || crew.key) ?? []), crew]);
  return [...alike];
}

function Group({ group, crews, onSeen }) {
  const item = ([key, those]) => (those.length > 1 ? h(Alike, { key, crews: those, onSeen }) : h(Crew, { key, crew: those[0], onSeen }));
  const title = `${GROUPS[group].title} (${crews.length.toLocaleString()})`;
  return h(Section, { title }, group === "waiting" && h(Unanswered, { crews }), h(Items, { items: itemsOf(crews).map((each) => item(each)) }));
}

function Items({ items }) {
  const [limit, setLimit] = useState(SHOWN);
  const more = limit < items.length && button(`Show ${Math.min(SHOWN, items.length - limit)} more`, () => setLimit(limit + SHOWN));
  return [el("ul", "crew-list", ...items.slice(0, limit)), more];
}

// What happens if nobody answers: the earliest of each kind.
export function Unanswered({ crews }) {
  const limits = crews.flatMap(({ told }) => (told?.choices ?? []).filter(([, , waits]) => waits));
  const first = new Map();
  for (const [, effect, waits] of limits) if (!(first.get(effect)?.deadline < waits.deadline)) first.set(effect, waits);
  const several = crews.length > 1 && "the first task";
  return first.size > 0 && facts([...first].map(([effect, waits]) => [CHOICES.nothing, late(waits, effect, several)]), "crew-end crew-choices");
}

const STARTS = new Set(["starts an execution (billed)", "starts another execution (billed)"]);

// What clearing these tasks costs, from the end of one of them.
export function priceOf(crews) {
  const [{ instance, end }, count] = [crews[0], crews.length.toLocaleString()];
  const { if_retried: retry, if_cleared: effect, tokens } = object(end);
  if (instance.state === "up_for_retry" && retry) return `Airflow retries ${count === "1" ? "the task, and it" : "them, and each"} ${text(retry)}.`;
  const about = number(tokens) > 0 ? `, about ${(tokens * crews.length).toLocaleString()} tokens` : "";
  if (STARTS.has(effect) && crews[0].told?.end.isUncertain) return `Look for ${count === "1" ? "its execution" : "their executions"} in the crew's dashboard. Clearing starts others (billed).`;
  if (STARTS.has(effect)) return `Clearing starts ${count} new execution${count === "1" ? "" : "s"}${about}.`;
  return effect ? `Clearing: ${count === "1" ? "it" : "each"} ${text(effect)}.` : "";
}

export function Alike({ crews, onSeen }) {
  const [isOpen, setOpen] = useState(false);
  const { look, told } = crews[0];
  const names = [...new Set(crews.map(({ dag, task }) => `${text(dag)} · ${text(task)}`))];
  const since = Math.min(...crews.map(({ endedAt }) => endedAt ?? Infinity));
  const time = Number.isFinite(since) && `since ${new Date(1000 * since).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}`;
  const more = names.length > 2 ? ` and ${names.length - 2} more` : "";
  return el(
    "li",
    `crew-card crew-header crew-${look.tone}`,
    el("div", "crew-line", el("span", "crew-badge", look.title), el("span", "crew-name", told?.end?.event), el("span", "crew-quiet crew-seconds", time)),
    el(
      "div",
      "crew-line",
      el("span", "crew-name", tasksOf(crews.length)),
      el("span", "crew-quiet", names.slice(0, 2).join(", "), more),
      el("span", "", priceOf(crews)),
      told?.failed && h(Clear, { tasks: crews.flatMap((crew) => crew.told?.failed ?? []), price: priceOf(crews), label: `Clear ${tasksOf(crews.length)}` }),
      button(isOpen ? "Hide tasks" : "Show tasks", () => setOpen(!isOpen), { "aria-expanded": isOpen }),
    ),
    isOpen && h(Items, { items: crews.map((crew) => h(Crew, { key: crew.key, crew, onSeen })) }),
  );
}

// A crew is read when it comes into view, or, if its reason is known from the list, when it is opened.
function Crew({ crew, onSeen }) {
  const place = useRef(null);
  const [isOpen, setOpen] = useState(false);
  const isShared = Boolean(crew.same) && !isOpen;
  useEffect(() => {
    if (isShared) return undefined;
    const observer = new IntersectionObserver((entries) => onSeen(crew.key, entries.at(-1).isIntersecting));
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      onSeen(crew.key, false);
    };
  }, [crew.key, isShared]);
  const line = () => h(Line, { crew, isOpen, toggle: () => setOpen(!isOpen) });
  return h("li", { ref: place, className: `crew-card crew-header crew-${crew.look.tone}` }, h(OrRaw, { raw: () => `${text(crew.dag)} · ${crew.name}` }, line));
}

// Two lines, whatever is known, and the rest if it is open.
export function Line({ crew: { dag, told, look, group, subject, href, name, run, startedAt, endedAt }, isOpen, toggle }) {
  const { waiting, end } = told ?? {};
  const hasEnded = group === "failed" || group === "completed";
  const since = hasEnded ? endedAt : (waiting?.since ?? told?.startedAt ?? startedAt);
  const draft = waiting?.draft && `${waiting.draft.title}: ${titleOf(waiting.draft.output)}`;
  const place = waiting?.place.replace(/^,? /, "");
  const about = [subject || draft || end?.event || told?.sentence, group === "running" && told?.bar?.says, place, told?.trouble];
  return [
    el(
      "div",
      "crew-line",
      el("span", "crew-badge", look.title),
      h("a", { href }, text(dag), " · ", name),
      el("span", "crew-quiet crew-run", run),
      group === "running" && told?.polledAt && h(Seen, { time: told.polledAt, staleAfter: told.staleAfter }),
      since && el("span", "crew-quiet crew-seconds", h(Since, { time: since }), hasEnded ? " ago" : ""),
      button("Details", toggle, { "aria-expanded": Boolean(isOpen), "aria-label": `Details of ${text(dag)} · ${name}` }),
    ),
    el("p", "crew-about", about.filter(Boolean).join(" · ")),
    isOpen && !told && quiet("Reading …"),
    isOpen && end && h(Ending, { of: end }),
    isOpen && told && h(Choices, told),
  ];
}

// The first line with a word.
const titleOf = (draft) => text((draft.split("\n").find((line) => /[\p{L}\p{N}]/u.test(line)) ?? "").replace(/^[\s#>*_-]+|[\s*_]+$/g, "").slice(0, 120));

export function Nothing({ filters: { dag, group, days } }) {
  if (dag || group) return quiet("No crew matches these filters.");
  const since = PERIODS.find(([each]) => each === days)[1];
  return quiet(`No crew is running or waiting, and none has failed in the last ${since}. A task with CrewRunOperator, CrewExecutionSensor, CrewBatchOperator or @task.crew appears here when it starts.`);
}
