// What a crew has put out: text as Markdown, JSON as a tree. What is large is cut, and can be had whole.
import { Markdown } from "./markdown.js";

const { Children, createElement: h, useState } = globalThis.React;

const SHOWN = 10000;
// Beyond, drawing it as Markdown takes a browser too long.
const MOST_MARKDOWN = 300000;
const MOST_MEMBERS = 100;
const DEEPEST_OPEN = 2;

export function Output({ label, source }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = source.length > SHOWN && !isWhole;
  const shown = isCut ? source.slice(0, SHOWN) : source;
  const isPlain = shown.length > MOST_MARKDOWN || isJson(source);
  return h(
    "div",
    { className: "crew-card crew-output" },
    isPlain ? h("pre", null, shown) : h(Markdown, { source: shown }),
    isCut
      ? h(
          "p",
          { className: "crew-cut" },
          "… ",
          h("button", { type: "button", onClick: () => setWhole(true) }, `Show all ${source.length.toLocaleString()} characters`),
          h("span", { className: "crew-unseen" }, ` of the ${label}`),
        )
      : null,
  );
}

function isJson(source) {
  if (!/^\s{0,100}[{[]/.test(source)) return false;
  try {
    JSON.parse(source);
    return true;
  } catch {
    return false;
  }
}

export function Tree({ value }) {
  return h("div", { className: "crew-card crew-json", tabIndex: 0, role: "region", "aria-label": "JSON" }, h(Member, { value, depth: 0 }));
}

const label = (name) => (name === undefined ? null : [h("span", { key: "name", className: "crew-key" }, name), ": "]);

function Member({ name, value, depth }) {
  if (value === null || typeof value !== "object") {
    const kind = value === null ? "null" : typeof value;
    return h("div", { className: "crew-leaf" }, label(name), h("span", { className: `crew-value crew-is-${kind}` }, String(JSON.stringify(value))));
  }
  return h(Branch, { name, value, depth });
}

// Only what is open is drawn, and of that a hundred members first.
function Branch({ name, value, depth }) {
  const [isOpen, setOpen] = useState(depth < DEEPEST_OPEN);
  const [shown, setShown] = useState(MOST_MEMBERS);
  const members = Object.entries(value);
  const size = Array.isArray(value) ? `[${members.length}]` : `{${members.length}}`;
  return h(
    "details",
    { open: isOpen, onToggle: (event) => setOpen(event.currentTarget.open) },
    h("summary", null, label(name), h("span", { className: "crew-quiet" }, size)),
    isOpen
      ? Children.toArray(members.slice(0, shown).map(([key, each]) => h(Member, { name: key, value: each, depth: depth + 1 })))
      : null,
    isOpen && shown < members.length
      ? h("button", { type: "button", onClick: () => setShown(members.length) }, `Show all ${members.length}`)
      : null,
  );
}
