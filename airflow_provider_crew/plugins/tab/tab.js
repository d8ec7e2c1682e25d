// The Crew tab: progress and output of a task instance's crew.
import { watch } from "./airflow.js";
import { Link } from "./markdown.js";
import { Output, Tree } from "./output.js";
import { duration, story } from "./story.js";

const { Children, Fragment, createElement: h, useEffect, useRef, useState } = globalThis.React;
const MOST_ROWS = 200;
const NOTHING = { seen: null, trouble: null };

// Marks, and their meaning for screen readers.
const MARKS = {
  done: ["✓", "done"],
  current: ["", "in progress"],
  waiting: ["?", "waiting"],
  failed: ["!", "failed"],
  left: ["…", "was in progress"],
};

export function CrewTab({ dagId, runId, taskId, mapIndex }) {
  const [told, setTold] = useState(NOTHING);
  useEffect(() => {
    setTold(NOTHING);
    return watch({ dagId, runId, taskId, mapIndex }, (news) => setTold((before) => heard(before, news)));
  }, [dagId, runId, taskId, mapIndex]);
  const { seen, trouble } = told;
  if (!seen) return h(Page, null, h("p", { className: "crew-quiet", role: "status" }, trouble ? sayTrouble(trouble) : "Loading …"));
  if (!seen.isOfCrew) return h(Page, null, h("p", { className: "crew-quiet" }, "This tab is for tasks that run a crew."));
  return h(Page, null, h(Story, { of: story(seen) }), trouble ? h("p", { className: "crew-quiet", role: "status" }, sayTrouble(trouble)) : null);
}

// What is known already is not drawn again: it may be large.
function heard(before, { seen = before.seen, trouble = null }) {
  return seen === before.seen && trouble === before.trouble ? before : { seen, trouble };
}

function sayTrouble({ status }) {
  if (status === 401) return "Airflow asks you to log in again. Reload the page.";
  if (status === 403) return "You may not read the XComs of this task, which this tab shows.";
  if (status === 404) return "Airflow does not know this task instance.";
  const said = status ? `Airflow answered ${status}.` : "Airflow does not answer.";
  return `${said} Trying again.`;
}

const Page = ({ children }) => h("div", { className: "crew-tab" }, children);

function Story({ of }) {
  return h(
    Fragment,
    null,
    h(Standing, { of }),
    of.end ? h(End, { end: of.end }) : null,
    h(Timeline, { of: of.timeline }),
    of.output ? h(Section, { title: "Output" }, h(Output, { label: "output", source: of.output })) : null,
    of.outputJson === null ? null : h(Section, { title: "JSON output" }, h(Tree, { value: of.outputJson })),
    of.elsewhere
      ? h(Section, { title: "Output" }, h("p", null, "The XCom backend keeps the result at ", h("code", null, of.elsewhere)))
      : null,
    of.usage.length ? h(Usage, { of: of.usage }) : null,
  );
}

const Section = ({ title, children }) =>
  h("section", { className: "crew-section", "aria-label": title }, h("h2", null, title), children);

function Standing({ of }) {
  return h(
    "header",
    { className: "crew-card crew-standing" },
    // Only what changes seldom is read aloud: how long it takes changes with each look.
    h(
      "div",
      { className: "crew-line", role: "status", "aria-live": "polite" },
      h("span", { className: `crew-badge crew-${of.tone}` }, of.title),
      of.sentence ? h("span", { className: "crew-sentence" }, of.sentence) : null,
    ),
    of.bar ? h(Bar, { of: of.bar, tone: of.tone }) : null,
    of.trouble ? h("p", { className: "crew-trouble" }, of.trouble) : null,
    h(Facts, { of }),
  );
}

function Bar({ of: { value, max, says }, tone }) {
  const measured = value === null ? {} : { "aria-valuemin": 0, "aria-valuemax": max, "aria-valuenow": value };
  const part = value === null ? {} : { style: { width: `${Math.min(100, (100 * value) / max)}%` } };
  return h(
    "div",
    { className: "crew-progress" },
    h(
      "div",
      { className: "crew-bar", role: "progressbar", "aria-label": "Progress of the crew", "aria-valuetext": says, ...measured },
      h("div", { className: `crew-bar-done crew-${tone}${value === null ? " crew-bar-open" : ""}`, ...part }),
    ),
    h("span", { className: "crew-quiet" }, says),
  );
}

function Facts({ of }) {
  const facts = [];
  if (of.since !== null) facts.push(["Waiting for", duration(of.since)]);
  if (of.runsFor !== null) facts.push([of.goesOn ? "Running for" : "Took", duration(of.runsFor)]);
  if (of.kickoffId) facts.push(["Kickoff ID", h(KickoffId, { id: of.kickoffId })]);
  if (of.dashboard) facts.push(["Dashboard", h(Link, { address: of.dashboard }, "The crew's page ↗")]);
  if (!facts.length) return null;
  const drawn = facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)));
  return h("dl", { className: "crew-facts" }, Children.toArray(drawn));
}

function KickoffId({ id }) {
  const shown = useRef(null);
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    const timer = copied && setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = () => copyText(id, shown.current).then(setCopied);
  return h(
    "span",
    { className: "crew-id" },
    h("code", { ref: shown }, id),
    h("button", { type: "button", onClick: copy, "aria-label": "Copy the kickoff ID" }, copied ? "Copied" : "Copy"),
    h("span", { className: "crew-unseen", role: "status" }, copied ? "Copied" : ""),
  );
}

// Over plain http a page has no clipboard: there the text is marked, and copied as a person would.
async function copyText(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand("copy");
  }
}

const COSTS = {
  none: "none; nothing was started.",
  running: "billed; the execution is running, or waits for human input.",
  ended: "billed; the execution has ended.",
  unknown: "unknown; an execution may have started.",
};

function End({ end }) {
  const told = { Event: end.event, Cost: COSTS[end.cost], Next: end.next_step };
  const lines = Object.entries(told).filter(([, text]) => typeof text === "string" && text);
  const drawn = lines.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)));
  return h("dl", { className: "crew-card crew-end", "aria-label": "How it ended" }, Children.toArray(drawn));
}

function Timeline({ of: { rows, missing, coming, untold } }) {
  const [isWhole, setWhole] = useState(false);
  if (!rows.length && !coming && !missing) return null;
  const shown = isWhole ? rows : rows.slice(0, MOST_ROWS);
  const notes = [];
  if (shown.length < rows.length) {
    notes.push(h("button", { type: "button", onClick: () => setWhole(true) }, `Show all ${rows.length} tasks`));
  }
  if (missing) notes.push(`${missing} more finished, without details.`);
  if (coming) notes.push(`${coming} more to come.`);
  if (untold) notes.push("The service has not reported every task.");
  return h(
    Section,
    { title: "Tasks" },
    shown.length ? h("ol", { className: "crew-timeline" }, Children.toArray(shown.map((row) => h(Row, { of: row })))) : null,
    Children.toArray(notes.map((note) => h("p", { className: "crew-quiet" }, note))),
  );
}

function Row({ of: { state, name, agent, seconds, output } }) {
  const [mark, meaning] = MARKS[state];
  return h(
    "li",
    { className: `crew-row crew-row-${state}`, "aria-current": state === "current" ? "step" : undefined },
    h("span", { className: "crew-mark", "aria-hidden": true }, mark),
    h(
      "div",
      { className: "crew-row-body" },
      h(
        "div",
        { className: "crew-row-head" },
        h("span", { className: "crew-name" }, name),
        h("span", { className: "crew-unseen" }, meaning),
        agent ? h("span", { className: "crew-quiet" }, agent) : null,
        seconds === null ? null : h("span", { className: "crew-quiet crew-seconds" }, duration(seconds)),
      ),
      output ? h(RowOutput, { name, output }) : null,
    ),
  );
}

// What is folded is not drawn: crews may have many tasks.
function RowOutput({ name, output }) {
  const [isOpen, setOpen] = useState(false);
  return h(
    "details",
    { onToggle: (event) => setOpen(event.currentTarget.open) },
    h("summary", null, "Output", h("span", { className: "crew-unseen" }, ` of ${name}`)),
    isOpen ? h(Output, { label: `output of ${name}`, source: output }) : null,
  );
}

function Usage({ of }) {
  const drawn = of.map(([name, value]) =>
    h("div", null, h("dt", null, name.replaceAll("_", " ")), h("dd", null, value.toLocaleString())),
  );
  return h(Section, { title: "Usage" }, h("dl", { className: "crew-facts" }, Children.toArray(drawn)));
}
