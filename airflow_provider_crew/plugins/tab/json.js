// JSON as a tree. Each folded item shows a preview.
import { all, button, el, h, useState } from "./elements.js";
import { visible } from "./safe.js";

const MOST_MEMBERS = 100;
const DEEPEST_OPEN = 2;
const PREVIEW = 80;

export function Tree({ value }) {
  return h("div", { className: "crew-json", tabIndex: 0, role: "region", "aria-label": "JSON" }, h(Member, { value, depth: 0 }));
}

const isBranch = (value) => value !== null && typeof value === "object" && Object.keys(value).length > 0;
const cut = (text, limit) => (text.length > limit ? `${text.slice(0, limit)}…` : text);
const label = (name) => (name === undefined ? null : [el("span", "crew-key", visible(name)), ": "]);

function Member({ name, value, depth }) {
  if (isBranch(value)) return h(Branch, { name, value, depth });
  const kind = value === null ? "null" : typeof value;
  return el("div", "crew-leaf", ...all(label(name)), el("span", `crew-is-${kind}`, visible(JSON.stringify(value))));
}

// The first members of an object or an array, one level deep.
function preview(value) {
  const isArray = Array.isArray(value);
  let text = "";
  for (const [name, each] of Object.entries(value)) {
    if (text.length > PREVIEW) break;
    const short = isBranch(each) ? (Array.isArray(each) ? `[${each.length}]` : "{…}") : cut(JSON.stringify(each).slice(0, PREVIEW), 30);
    text += `${text && ", "}${isArray ? "" : `${cut(name, 30)}: `}${short}`;
  }
  const inside = visible(cut(text, PREVIEW));
  return isArray ? `[${inside}]` : `{${inside}}`;
}

// Only what is open is drawn, and at first only a hundred members.
function Branch({ name, value, depth }) {
  const [isOpen, setOpen] = useState(depth < DEEPEST_OPEN);
  const [shown, setShown] = useState(MOST_MEMBERS);
  const members = Object.entries(value);
  const isArray = Array.isArray(value);
  const size = `${members.length} ${isArray ? "item" : "field"}${members.length === 1 ? "" : "s"}`;
  return h(
    "details",
    { open: isOpen, onToggle: (event) => setOpen(event.currentTarget.open) },
    el("summary", null, ...all(label(name)), el("span", "crew-quiet", isOpen ? size : preview(value))),
    isOpen && all(members.slice(0, shown).map(([key, each]) => h(Member, { name: key, value: each, depth: depth + 1 }))),
    isOpen && shown < members.length && button(`Show all ${members.length}`, () => setShown(members.length)),
  );
}
