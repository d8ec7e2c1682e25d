// The Crew tab: progress and output of a task instance's crew.
import { refusal, watch } from "./airflow.js";
import { Attempts, costOf, useAttempts } from "./attempts.js";
import { Results } from "./batch.js";
import { Clear } from "./clear.js";
import { Folded, Fragment, OrRaw, Seen, Since, Until, all, button, duration, el, h, useEffect, useState } from "./elements.js";
import { Markdown } from "./markdown.js";
import { Copy, Output } from "./output.js";
import { Question } from "./question.js";
import { pretty, visible } from "./safe.js";
import { CHOICES, story } from "./story.js";

const MOST_ROWS = 200;
const SHOWN_INPUTS = 200;
// Texts for screen readers.
const STATES = { done: "done", current: "in progress", waiting: "waiting", failed: "failed", left: "was in progress", coming: "to come" };

export function CrewTab({ dagId, runId, taskId, mapIndex, taskInstance }) {
  const { region_id: regionId, region_index: regionIndex } = taskInstance ?? {};
  const task = { dagId, runId, taskId, mapIndex, regionId, regionIndex };
  const [{ seen, trouble }, setNews] = useState({});
  useEffect(() => {
    setNews({});
    return watch(task, (news) => setNews((before) => changed(before, news)));
  }, [dagId, runId, taskId, mapIndex, regionId, regionIndex]);
  const note = trouble ? messageOf(trouble, "the XComs of this task, which this tab shows") : seen ? "" : "Loading …";
  return el(
    "div",
    "crew-tab",
    seen && (seen.isOfCrew ? h(Told, { seen }) : quiet("This tab is for tasks that run a crew.")),
    note && h("p", { className: "crew-quiet", role: "status" }, note),
  );
}

export const Told = ({ seen }) => h(OrRaw, { raw: () => visible(pretty(seen)) }, () => h(Story, { of: story(seen), task: seen.task }));

// A task that has not changed is not drawn again, because it may be large.
const changed = (before, { seen = before.seen, trouble }) =>
  seen === before.seen && trouble === before.trouble ? before : { seen, trouble };

export const messageOf = (error, what) =>
  refusal(error, { 403: `You have no permission to read ${what}.` }) ?? `${error.status ? `Airflow returned ${error.status}.` : "Airflow does not respond."} Trying again.`;

export const quiet = (...children) => el("p", "crew-quiet", ...children);
export const Section = ({ title, children }) =>
  h("section", { className: "crew-section", "aria-label": title }, h("h2", null, title), children);
export const facts = (entries, className = "crew-facts") =>
  el("dl", className, ...all(entries.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));

function Story({ of, task }) {
  const found = useAttempts(task, of);
  const hasOutput = of.output !== "" || of.outputJson !== undefined;
  const usage = of.usage.map(([name, value]) => [visible(name).replaceAll("_", " "), value.toLocaleString()]);
  return h(
    Fragment,
    null,
    h(Header, { of, cost: costOf(found, of.attempt) }),
    of.question && h(Question, { of: of.question, task }),
    of.question?.form && el("div", "crew-section", h(Choices, of)),
    of.waiting?.draft && h(Section, { title: of.waiting.draft.title }, h(Output, { label: "draft", source: of.waiting.draft.output })),
    hasOutput && h(Section, { title: "Output" }, h(Output, { label: "output", source: of.output, json: of.outputJson })),
    of.elsewhere && h(Section, { title: "Output" }, quiet("The XCom backend keeps the result at ", h("code", null, of.elsewhere))),
    of.batch && h(Section, { title: "Rows" }, facts(of.batch.facts), h(Results, { of: of.batch })),
    h(Timeline, { of }),
    usage.length > 0 && h(Section, { title: "Usage" }, facts(usage)),
    of.attempt > 1 && h(Attempts, { key: of.attempt, found, current: of.attempt, isOpenAtFirst: of.isLost || of.failed !== null }),
  );
}

const copied = (text, label) => el("span", "crew-id", h("code", null, text), h(Copy, { text, label, isIcon: true }));

// The effect of doing nothing has the time left.
export const late = ({ deadline, isAnsweredLater: isIt }, effect, task = "the task") =>
  el("span", "", isIt ? "in " : `${task || "the task"} stops waiting in `, h(Until, { time: deadline }), isIt ? `, ${effect}` : `, and ${effect}`);

export function Header({ of, cost = "" }) {
  const { startedAt, endedAt, took, kickoffId, waiting } = of;
  const known = [
    startedAt !== null && ["Running for", h(Since, { time: startedAt })],
    took !== null && ["Took", duration(took)],
    endedAt !== null && ["Ended", el("span", "", h(Since, { time: endedAt }), " ago")],
    of.tokens !== undefined && ["Tokens", of.tokens.toLocaleString()],
    cost && ["Billed over all attempts", cost],
    kickoffId && ["Kickoff ID", copied(kickoffId, "kickoff ID")],
  ].filter(Boolean);
  const badge = [el("span", "crew-badge", of.title), of.sentence && h("span", null, of.sentence)];
  const since = waiting?.since && ["for ", h(Since, { key: "since", time: waiting.since })];
  const className = `crew-button${waiting?.isElsewhere ? " crew-main-button" : ""}`;
  const link = { href: of.dashboard, title: of.dashboard, className, target: "_blank", rel: "noopener noreferrer" };
  return el(
    "header",
    `crew-card crew-header crew-${of.tone}`,
    el(
      "div",
      "crew-line",
      // A screen reader reads this aloud when it changes, so it holds no clock.
      h("div", { className: "crew-line", role: "status", "aria-live": "polite" }, ...badge),
      waiting && h("span", null, since, waiting.place),
      of.polledAt !== null && h(Seen, { time: of.polledAt, staleAfter: of.staleAfter }),
      of.dashboard && h("a", link, waiting?.isElsewhere ? "Answer in the crew dashboard ↗" : "Crew dashboard ↗"),
    ),
    waiting?.isElsewhere && h("p", null, "Answer in the crew's dashboard, and the crew continues."),
    of.end && h(Ending, { of: of.end }),
    of.inputs.length > 0 && h(Inputs, { of: of.inputs }),
    of.bar && h(Bar, { of: of.bar }),
    of.trouble && el("p", "crew-trouble", of.trouble),
    known.length > 0 && facts(known),
    !of.question?.form && h(Choices, of),
  );
}

function Inputs({ of }) {
  const short = of.map(([name, value]) => `${name}: ${value}`).join(", ").slice(0, SHOWN_INPUTS);
  return h(Folded, { title: ["Inputs ", el("span", "crew-quiet", short)] }, () => facts(of, "crew-end crew-inputs"));
}

export function Choices({ choices, failed }) {
  const clear = (effect) => failed && h(Clear, { tasks: failed, price: `Clearing the task: ${effect}`, label: "Clear" });
  const told = choices.map(([title, effect, waits]) => [title, waits ? late(waits, effect) : [effect, " ", title === CHOICES.clear && clear(effect)]]);
  return told.length > 0 && facts(told, "crew-end crew-choices");
}

export function Ending({ of: { reason, lines, rest, misfits, at, cost, retry, retryAt, next, meta } }) {
  const when = retryAt && [" in ", h(Until, { key: "until", time: retryAt })];
  const then = retry ? ["Airflow retries the task", when, ` and ${retry}.`] : next && h(Markdown, { source: next });
  const rows = [["At", at], ["Cost", cost], ["Next", then], ["Meta", meta && copied(meta, "meta")]].filter(([, value]) => value);
  const fields = misfits.length > 0 && h("ul", null, all(misfits.map((each) => h("li", null, each))));
  const block = lines && h("pre", { tabIndex: 0, "aria-label": "Error of the crew" }, lines);
  return el("div", "crew-ending", reason && el("p", "crew-reason", reason), block, rest && el("p", "", rest), fields, facts(rows, "crew-end"));
}

function Bar({ of: { value, max, says } }) {
  const done = value === null ? {} : { value, max };
  const bar = h("progress", { className: "crew-bar", "aria-label": "Progress of the crew", ...done });
  return el("div", "crew-progress", bar, says && el("span", "crew-quiet", says));
}

function Timeline({ of: { rows, missing, coming, more, isPartial } }) {
  const [isWhole, setWhole] = useState(false);
  if (!rows.length && !coming.length && !missing) return null;
  const shown = isWhole ? rows : rows.slice(0, MOST_ROWS);
  const times = shown.flatMap((row) => row.times ?? []);
  const [from, length] = [Math.min(...times), Math.max(...times) - Math.min(...times)];
  return h(
    Section,
    { title: "Tasks" },
    missing > 0 && quiet(`${missing} finished without details.`),
    el("ol", "crew-timeline", ...all([...shown, ...coming].map((row) => h(Row, { of: row, from, length })))),
    shown.length < rows.length && button(`Show all ${rows.length} tasks`, () => setWhole(true)),
    more > 0 && quiet(`${more} more to come.`),
    isPartial && quiet("The crew has not reported every task."),
  );
}

// The time from one task to the next. It is pale as long as the crew was not seen at work on it.
function Span({ of: [start, began, end], state, from, length }) {
  const share = (time) => `${(100 * (time - from)) / length}%`;
  const label = `${began - start >= 1 ? `${duration(began - start)} in a queue or between two polls, then ` : ""}${duration(end - began)} ${state === "waiting" ? "waiting" : "at work"}`;
  return h("div", { className: "crew-span", role: "img", "aria-label": label, title: label, style: { "--crew-start": share(start), "--crew-began": share(began), "--crew-end": share(end) } });
}

function Row({ of: { state, name, agent, seconds, startedAt, output, times }, from, length }) {
  const time = startedAt ? h(Since, { time: startedAt }) : seconds !== null && duration(seconds);
  const head = [
    el("span", "crew-name", name),
    el("span", "crew-unseen", STATES[state]),
    agent && el("span", "crew-quiet", agent),
    time && el("span", "crew-quiet crew-seconds", time),
  ];
  return h(
    "li",
    { className: `crew-row crew-row-${state}`, "aria-current": state === "current" ? "step" : undefined },
    h("span", { className: "crew-mark", "aria-hidden": true }),
    el(
      "div",
      "crew-row-body",
      el("div", "crew-row-head", ...head),
      times && length > 0 && h(Span, { of: times, state, from, length }),
      output && h(Folded, { title: ["Output", el("span", "crew-unseen", ` of ${name}`)] }, () => h(Output, { label: `output of ${name}`, source: output })),
    ),
  );
}
