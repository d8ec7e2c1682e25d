// The page "Crews": what waits for people, what failed and what runs, over all DAGs that the viewer may see.
import { watchCrews } from "./crews.js";
import { Fragment, OrRaw, Seen, Since, all, button, el, h, useEffect, useRef, useState } from "./elements.js";
import { number, text } from "./safe.js";
import { CHOICES, story } from "./story.js";
import { Choices, Ending, Section, facts, messageOf, quiet } from "./tab.js";

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
  history.replaceState(history.state, "", `${location.pathname}?${query}`.replace(/\?$/, ""));
}

export function CrewsPage() {
  const [filters, setFilters] = useState(chosen);
  const [{ rows, isCut, trouble }, setNews] = useState({});
  const dags = useRef(new Set());
  const watched = useRef(null);
  const { dag, group, days } = filters;
  const withCompleted = group === "completed";
  const choose = (change) => {
    setFilters({ ...filters, ...change });
    keep({ ...filters, ...change });
  };
  useEffect(() => {
    setNews({});
    watched.current = watchCrews({ dag, days, withCompleted }, (news) => setNews((before) => ({ ...before, ...news })));
    return () => watched.current.stop();
  }, [dag, days, withCompleted]);
  const crews = (rows ?? []).map(crewOf);
  for (const each of [dag, ...crews.map((crew) => crew.dag)]) if (each) dags.current.add(each);
  const note = trouble ? messageOf(trouble, "the task instances and XComs that this page shows") : rows ? "" : "Loading …";
  return el(
    "div",
    "crew-tab crew-page",
    el("h1", "", "Crews"),
    h(Filters, { filters, choose, dags: [...dags.current].sort(), crews }),
    isCut && quiet(`Airflow has more tasks than this page reads. ${dag ? "Some crews are missing." : "Choose a DAG to see all of its crews."}`),
    rows && h(Crews, { crews, filters, onSeen: (key, isInView) => watched.current.note(key, isInView) }),
    note && h("p", { className: "crew-quiet", role: "status" }, note),
  );
}

// Until its details are read, a row has only what the list has.
export function crewOf({ key, instance, request, isRead, seen }) {
  const { dag_id: dag, dag_run_id: run, task_id: task, map_index: index, region_id: region, start_date: start } = instance;
  const told = isRead ? storyOrNull(seen) : null;
  const find = (name, value) => Object.keys(GROUPS).find((each) => GROUPS[each][name]?.includes(value));
  const group = told ? (find("how", told.how) ?? "failed") : (find("states", instance.state) ?? "running");
  const path = ["dags", dag, "runs", run, "tasks", task, ...(index < 0 ? [] : ["mapped", String(index)]), "plugin", "crew"];
  const address = new URL(path.map(encodeURIComponent).join("/"), document.baseURI);
  if (region) address.search = new URLSearchParams({ region_id: region, region_index: instance.region_index });
  const which = index < 0 ? "" : ` [${text(instance.rendered_map_index ?? String(index))}]`;
  const isOpen = request !== undefined && !request.response_received;
  return { key, dag, told, group: isOpen ? "waiting" : group, subject: isOpen ? text(request.subject) : "", href: address.href, name: `${text(task)}${which}`, run: text(run), startedAt: number(Date.parse(start) / 1000), tokens: tokensOf(told) };
}

// A row that cannot be read hides no other.
function storyOrNull(seen) {
  try {
    return story(seen);
  } catch {
    return null;
  }
}

const tokensOf = (told) => told?.usage.find(([name]) => name === "total_tokens")?.[1] ?? told?.batch?.tokens ?? 0;

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
    ...sections.map(([each, those]) => h(Group, { key: each, title: GROUPS[each].title, crews: those, onSeen })),
  ];
}

export function Tokens({ crews }) {
  const sum = crews.reduce((total, crew) => total + crew.tokens, 0);
  return sum > 0 && facts([["Tokens of the tasks shown", sum.toLocaleString()]]);
}

function Group({ title, crews, onSeen }) {
  const [limit, setLimit] = useState(SHOWN);
  const rows = crews.slice(0, limit).map((crew) => h(Crew, { key: crew.key, crew, onSeen }));
  const more = limit < crews.length && button(`Show ${Math.min(SHOWN, crews.length - limit)} more`, () => setLimit(limit + SHOWN));
  return h(Section, { title: `${title} (${crews.length.toLocaleString()})` }, el("ul", "crew-list", ...rows), more);
}

// A crew is read when it comes into view.
function Crew({ crew, onSeen }) {
  const place = useRef(null);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => onSeen(crew.key, entries.at(-1).isIntersecting));
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      onSeen(crew.key, false);
    };
  }, [crew.key]);
  return h("li", { ref: place, className: `crew-card crew-header crew-${crew.told?.tone ?? "quiet"}` }, h(OrRaw, { raw: () => `${text(crew.dag)} · ${crew.name}` }, () => h(Line, { crew })));
}

export function Line({ crew: { dag, told, group, subject, href, name, run, startedAt } }) {
  const { waiting, end } = told ?? {};
  const choices = told?.choices.filter(([title, , deadline]) => deadline || (end && title === CHOICES.clear));
  const since = waiting?.since ?? told?.startedAt ?? (group === "running" || group === "waiting" ? startedAt : told?.endedAt);
  return h(
    Fragment,
    null,
    el(
      "div",
      "crew-line",
      el("span", "crew-badge", told?.title ?? "…"),
      h("a", { href }, text(dag), " · ", name),
      el("span", "crew-quiet", run),
      told?.sentence && h("span", null, told.sentence),
      told?.bar && group === "running" && el("span", "crew-quiet", told.bar.says),
      waiting?.place && h("span", null, waiting.place.replace(/^, /, "")),
      told?.polledAt && h(Seen, { time: told.polledAt, staleAfter: told.staleAfter }),
      since && el("span", "crew-quiet crew-seconds", h(Since, { time: since }), end ? " ago" : ""),
    ),
    subject && !waiting?.draft && h("p", null, subject),
    waiting?.draft && h("p", null, `${waiting.draft.title}: `, titleOf(waiting.draft.output)),
    told?.trouble && el("p", "crew-trouble", told.trouble),
    end && h(Ending, { of: { ...end, reason: end.event, rest: "", lines: "", misfits: [] } }),
    choices && h(Choices, { choices }),
  );
}

// The first line with a word.
const titleOf = (draft) => text((draft.split("\n").find((line) => /[\p{L}\p{N}]/u.test(line)) ?? "").replace(/^[\s#>*_-]+|[\s*_]+$/g, "").slice(0, 120));

export function Nothing({ filters: { dag, group, days } }) {
  if (dag || group) return quiet("No crew matches these filters.");
  const since = PERIODS.find(([each]) => each === days)[1];
  return quiet(`No crew is running or waiting, and none has failed in the last ${since}. A task with CrewRunOperator, CrewExecutionSensor, CrewBatchOperator or @task.crew appears here when it starts.`);
}
