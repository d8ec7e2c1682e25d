// The question of a crew with answer_in_airflow: its draft, the form that answers it, and the outcome of each answer.
import { answer, refusal } from "./airflow.js";
import { Folded, Fragment, Until, all, button, el, h, useEffect, useRef, useState } from "./elements.js";
import { Output } from "./output.js";
import { list, number, object, text } from "./safe.js";

const SHOWN_LINES = 20;
const SHOWN_CHARACTERS = 1500;
const STOP = "Stop waiting";
const VERBS = { Approve: "approved the draft", "Send back": "sent the draft back", Answer: "answered" };
const OUTCOMES = { "": "Not sent yet.", sent: "Delivered.", rejected: "No effect.", not_sent: "No effect.", uncertain: "Uncertain whether it was delivered.", sending: "Being delivered." };

const QUEUED_OR_RUNNING = new Set(["scheduled", "queued", "running"]);

const timeOf = (value) => number(Date.parse(value) / 1000);

/**
 * Null for a task that is not answered here. There is a form only for an open request whose draft is known: both have
 * the question's ID, which goes with the answer, and which the task compares.
 * @typedef {{ option: string, user: string, at: string, outcome: string, why: string, stored_at: number }} Answer
 */
export function questionOf({ state, crew_question: box, crew_progress: progress, answered, request: found }) {
  if (box === undefined) return null;
  const { kickoff_id: kickoffId, since, state: standing } = object(progress);
  const [kept, request] = [object(answered), object(found)];
  const known = !kickoffId || kept.kickoff_id === kickoffId ? kept : {}; // not that of an earlier execution
  const { task_id: id, draft } = known;
  const answers = list(known.answers).map(object).map(told);
  // The process that sent it was killed.
  if (state !== "running") for (const each of answers) if (each.outcome === "sending") each.outcome = "uncertain";
  const user = object(request.responded_by_user).name || "a user";
  const given = told({ option: list(request.chosen_options)[0], user, at: request.responded_at, outcome: "", why: "" });
  // Airflow keeps the request if the task is cleared, and another execution may have started since.
  const isKnown = typeof id === "string" && typeof draft === "string" && object(object(request.params).question).value === id;
  const isSeen = (at) => number(since) > at; // a poll has seen another state since
  const isAnswer = Object.hasOwn(VERBS, given.option);
  const isClosed = isKnown && request.response_received === true;
  const isNew = isClosed && isAnswer && !answers.some(({ at }) => at === given.at) && !(isSeen(given.at) && standing !== "paused" && standing !== "unknown");
  const isOpen = isKnown && state === "deferred" && request.response_received === false;
  const count = number(known.number);
  // Airflow gives this answer itself, with the next process.
  const by = number(object(object(progress).choices).answer_by);
  const isLate = isKnown && by <= Date.now() / 1000 && by && !known.outcome && request.response_received === false && QUEUED_OR_RUNNING.has(state) && `The time for an answer is over: ${text(known.at_timeout)}.`;
  const form = {
    id,
    key: `${id} ${answers.at(-1)?.at}`, // a request that opens again has one answer more
    title: count > 1 ? `Draft ${count}` : "Draft",
    draft,
    openedAt: timeOf(request.created_at),
    deadline: by ? null : number(known.answer_by),
    late: text(known.at_timeout),
    users: list(request.assigned_users).map((each) => text(object(each).name)),
  };
  // The crew has the answer, or may have it, and no poll has seen it continue.
  const isGiven = ["sending", "sent", "uncertain"].includes(known.outcome);
  const isWithCrew = isGiven && !known.is_over && !isSeen(answers.at(-1)?.storedAt);
  // The task needs seconds to open the request for a question, for the first time or after an answer without effect.
  const asks = object(object(box).question).task_id;
  const isOver = isClosed && (!isAnswer || isSeen(given.at));
  const isAsked = asks !== undefined && (asks !== id || (state !== "deferred" && !isOver && (!known.outcome || known.outcome === "rejected")));
  const isComing = isAsked && !isOpen && !isNew && !isLate && (state === "deferred" || QUEUED_OR_RUNNING.has(state));
  return { form: isOpen ? form : null, answers: isNew ? [...answers, given] : answers, isNew, isLate, isWithCrew, isComing };
}

const told = ({ option, user, at, outcome, why, stored_at: storedAt }) => ({ option: text(option), user: text(user), at: timeOf(at), outcome: text(outcome), why: text(why), storedAt: number(storedAt) ?? timeOf(at) });

function messageOf(error, users) {
  const who = `You need the right to edit the task's Required Actions${users.length ? `, and to be one of: ${users.join(", ")}` : ""}.`;
  const known = { 403: `You can read this question, but not answer it (403). ${who}`, 404: "This question is no longer open.", 409: "This question was answered or closed in the meantime, so this answer was not sent." };
  return refusal(error, known) ?? "Airflow has not confirmed your answer. If it arrived, it appears here within seconds. Otherwise, answer again.";
}

export function Question({ of: { form, answers, isComing }, task }) {
  // No other draft replaces the one before the reader's eyes.
  const [shown, show] = useState(null);
  const [done, setDone] = useState(null);
  const [words, setWords] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [note, setNote] = useState("");
  const isSending = useRef(false);
  const place = useRef(null);
  useEffect(() => {
    if (!form) return void setDone(null); // the request may open again
    setNote("");
    if (shown === null) show(form.id);
  }, [form?.id]);

  async function choose(option) {
    if (isSending.current) return; // a second click, before the page has disabled the buttons
    isSending.current = true;
    setBusy(true);
    setNote("");
    try {
      await answer(task, option, { question: form.id, text: words.trim() || null });
      setDone(form.key);
      setWords("");
      show(null);
    } catch (error) {
      setNote(messageOf(error, form.users));
    }
    isSending.current = false;
    setBusy(false);
    place.current?.focus(); // the button has lost it
  }

  const isOther = form && form.id !== (shown ?? form.id);
  const isDone = form?.key === done;
  const sent = form && isDone ? "Airflow has your answer." : "";
  // Another user, or another page, has answered.
  const isLost = !form && words.trim() !== "" && done === null && !isBusy;
  const lost = isLost && "This question was answered or closed before you sent your text:";
  const status = note || lost || (isBusy ? "Sending …" : isComing ? "The crew has asked a question. It appears here within seconds." : sent);
  return h(
    "section",
    { className: "crew-section crew-question", "aria-label": "Question from the crew" },
    isOther && h("p", null, "The crew has asked another question. ", button("Show it", () => show(form.id))),
    form && !isOther && h(Draft, { key: form.id, of: form }),
    form && !isOther && !isDone && h(Form, { of: form, words, setWords, isBusy, choose }),
    h("p", { ref: place, tabIndex: -1, className: note ? "crew-trouble" : "crew-quiet", role: "status" }, status),
    isLost && h("pre", null, words),
    answers.length > 0 && el("ul", "crew-answers", ...all(answers.map((each) => h("li", null, sentence(each))))),
  );
}

function sentence({ option, user, at, outcome, why }) {
  const time = at ? new Date(1000 * at).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : "";
  const verb = Object.hasOwn(VERBS, option) ? VERBS[option] : `chose ${option}`;
  const became = Object.hasOwn(OUTCOMES, outcome) ? OUTCOMES[outcome] : outcome;
  return `${time}: ${user || "After the time limit, Airflow"} ${verb}. ${became} ${why}`;
}

function Draft({ of: { title, draft } }) {
  const isLong = draft.length > SHOWN_CHARACTERS || draft.split("\n", SHOWN_LINES + 1).length > SHOWN_LINES;
  const [isWhole, setWhole] = useState(!isLong);
  const output = h(Output, { label: "draft", source: draft });
  return h(Fragment, null, h("h2", null, title), isWhole ? output : el("div", "crew-fold", output), !isWhole && button("Show the whole draft", () => setWhole(true)));
}

function Form({ of: { deadline, late, users }, words, setWords, isBusy, choose }) {
  const hasText = words.trim() !== "";
  const row = (option, effect, isOff) => {
    const id = `crew-effect-${option.replace(" ", "-")}`;
    return h("div", null, h("dt", null, button(option, () => choose(option), { disabled: isBusy || isOff, "aria-describedby": id })), h("dd", { id }, effect));
  };
  const field = { rows: 3, value: words, disabled: isBusy, onChange: (event) => setWords(event.target.value) };
  const stop = () => el("p", "", "This fails the task. The execution keeps running and is billed. ", button("Fail the task", () => choose(STOP), { disabled: isBusy }));
  const limit = deadline > Date.now() / 1000 && late && [h(Until, { key: "until", time: deadline }), `, ${late}.`];
  return el(
    "div",
    "crew-form",
    users.length > 0 && el("p", "", `Only these users may answer: ${users.join(", ")}`),
    h("label", null, "Text for the crew", h("textarea", field)),
    el(
      "dl",
      "crew-end",
      row("Approve", hasText ? "takes no text" : "the crew continues", hasText),
      row("Send back", hasText ? "the crew does the task again with your text, which is billed" : "the crew does the task again, which is billed", false),
      row("Answer", hasText ? "the crew continues with your text as data" : "needs a text", !hasText),
    ),
    limit && el("p", "crew-quiet", "Without an answer within ", ...limit),
    h(Folded, { title: [STOP] }, stop),
  );
}
