// A part of Markdown as React elements. Anything else is shown as text: no HTML, no images, no addresses but http and
// https. Each search has a limit, so that no text takes long.
import { all, el, h as element } from "./elements.js";
import { Link, visible } from "./safe.js";

const DEEPEST = 5;
const LONGEST = 20000;
const MOST_ELEMENTS = 20000;
const LONGEST_LINE = 1000;
const MOST_CELLS = 50;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
// With the flag s, a dot matches U+2028 as well, so the rest always fits and no space of a line is tried twice.
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/s;
const ITEM = /^( {0,20})([-*+]|\d{1,9}[.)])(\s+)(.*)$/s;
const TASK = /^\[([ xX])\] /;
const RULE = /^(-{3,}|\*{3,}|_{3,})$/;
const DASHES = /^[\s:|-]+$/;
const CELL_PARTS = /\\\||`[^`]{1,1000}`|\||[^\\`|]+|[\\`]/g;

const ADDRESS = String.raw`https?:\/\/[^\s()<>]{1,1000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,1000})?`;
const REFERENCE = new RegExp(String.raw`^ {0,3}\[([^\]]{1,200})\]: {0,20}<?(${ADDRESS})>?(?: {1,20}["'(].{0,200})?$`);
// Each name is the name of the group that it matches.
const INLINE = new RegExp(
  [
    String.raw`\\(?<escaped>\n|[!-\/:-@[-\`{-~])`,
    "`(?<code>[^`\\n]{1,1000})`",
    String.raw`!?\[(?<label>[^\]\n]{0,500})\]\((?<target>${ADDRESS})(?:\s"[^"\n]{0,200}")?\)`,
    String.raw`!?\[(?<text>[^\[\]\n]{1,500})\](?:\[(?<reference>[^\]\n]{0,200})\])?`,
    String.raw`<(?<angled>${ADDRESS})>`,
    String.raw`(?<bare>${ADDRESS})`,
    String.raw`\*\*(?=\S)(?<strong>[^\n]{1,500}?)\*\*`,
    String.raw`\*(?=\S)(?<em>[^*\n]{1,500})\*`,
    String.raw`(?<!\w)__(?=\S)(?<strong2>[^_\n]{1,500})__(?!\w)`,
    String.raw`(?<!\w)_(?=\S)(?<em2>[^_\n]{1,500})_(?!\w)`,
    String.raw`~~(?=\S)(?<del>[^~\n]{1,500})~~`,
    String.raw`&(?<entity>#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-z]{2,6});`,
    String.raw`(?<newline><br ?\/?>)`,
  ].join("|"),
  "g",
);
const END_OF_SENTENCE = /[.,;:!?'"*_~\]]{1,20}$/;
const ENTITIES = {
  ...{ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", mdash: "—", ndash: "–", bull: "•" },
  ...{ lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", times: "×", middot: "·", deg: "°", euro: "€", rarr: "→" },
};

let left = 0;

function h(...given) {
  left -= 1;
  if (left < 0) throw new RangeError("too many elements");
  return element(...given);
}

function entity(name) {
  if (!name.startsWith("#")) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : `&${name};`;
  const code = /^#x/i.test(name) ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
  return code >= 32 && code <= 0x10ffff ? visible(String.fromCodePoint(code)) : `&${name};`;
}

// The element of a match, or null if its text stays as it is. References: addresses by name, in lower case, and null
// within a link.
function span(groups, references, depth) {
  const { escaped, code, label, target, text, reference, angled, bare, strong, em, strong2, em2, del, newline } = groups;
  const inner = (tag, body) => h(tag, null, inline(body, references, depth + 1));
  const link = (address, shown) => h(Link, { address }, inline(shown, null, depth + 1));
  if (escaped !== undefined) return escaped;
  if (code !== undefined) return h("code", null, code);
  if (references === null && (target ?? text ?? angled ?? bare) !== undefined) return null;
  if (target !== undefined) return label ? link(target, label) : h(Link, { address: target }, target);
  if (text !== undefined) {
    const address = references.get((reference || text).toLowerCase());
    return address ? link(address, text) : null;
  }
  if (angled ?? bare) return h(Link, { address: angled ?? bare }, angled ?? bare);
  if (strong ?? strong2) return inner("strong", strong ?? strong2);
  if (em ?? em2) return inner("em", em ?? em2);
  if (del !== undefined) return inner("del", del);
  return newline ? h("br") : entity(groups.entity);
}

function inline(source, references, depth = 0) {
  if (depth > DEEPEST || source.length > LONGEST) return [source];
  const search = new RegExp(INLINE);
  const found = [];
  let from = 0;
  for (let match; (match = search.exec(source)); ) {
    const { groups } = match;
    if (groups.bare) groups.bare = groups.bare.replace(END_OF_SENTENCE, "");
    const element = span(groups, references, depth);
    // The text in brackets that are no link may hold other elements.
    if (element === null) search.lastIndex = match.index + 1;
    else {
      found.push(source.slice(from, match.index), element);
      from = search.lastIndex = match.index + (groups.bare ?? match[0]).length;
    }
  }
  return all([...found, source.slice(from)]);
}

function cells(line) {
  const found = [""];
  for (const [part] of line.trim().replace(/^\|/, "").matchAll(CELL_PARTS)) {
    if (part === "|") found.push("");
    else found[found.length - 1] += part.replaceAll("\\|", "|");
  }
  if (found.at(-1).trim() === "") found.pop();
  return found.slice(0, MOST_CELLS).map((cell) => cell.trim());
}

const alignment = (dashes = "") => (dashes.endsWith(":") ? { textAlign: dashes.startsWith(":") ? "center" : "right" } : undefined);

function table(lines, references) {
  const [head, dashes, ...rest] = lines.map(cells);
  const row = (tag, values) =>
    all(head.map((_, at) => h(tag, { style: alignment(dashes[at]) }, inline(values[at] ?? "", references))));
  const body = h("tbody", null, all(rest.map((values) => h("tr", null, row("td", values)))));
  const properties = { className: "crew-wide", tabIndex: 0, role: "region", "aria-label": "Table" };
  return h("div", properties, h("table", null, h("thead", null, h("tr", null, row("th", head))), body));
}

function item(lines, references, depth) {
  const task = TASK.exec(lines[0]);
  if (task) lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  const isDone = task && task[1] !== " ";
  const box = task && h("span", { role: "img", "aria-label": isDone ? "done" : "to do" }, isDone ? "☑" : "☐");
  const body = depth < DEEPEST ? blocks(lines, references, depth + 1) : inline(lines.join("\n"), references);
  return h("li", task ? { className: "crew-task" } : null, box, task ? h("div", null, body) : body);
}

// A list, and the line after it. Lines that are indented belong to the item above them.
function list(lines, at, references, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(mark);
  const items = [];
  let [end, textAt, wasBlank] = [at, 0, false];
  while (end < lines.length) {
    const line = lines[end];
    const isDeeper = line.search(/\S|$/) > indent.length;
    const match = isDeeper ? null : ITEM.exec(line);
    if (isBlank(line)) wasBlank = true;
    else if (match && /\d/.test(match[2]) === isOrdered) {
      items.push([match[4]]);
      textAt = match[1].length + match[2].length + Math.min(match[3].length, 4);
    } else if (!isDeeper && (match || wasBlank || begins(line, lines[end + 1]))) break;
    else items.at(-1).push(...(wasBlank ? [""] : []), line.slice(Math.min(textAt, line.search(/\S/))));
    if (!isBlank(line)) wasBlank = false;
    end += 1;
  }
  const drawn = all(items.map((each) => item(each, references, depth)));
  return [h(isOrdered ? "ol" : "ul", isOrdered ? { start: parseInt(mark, 10) } : null, drawn), end];
}

const isShort = (line) => line.length <= LONGEST_LINE;
const isBlank = (line) => line === undefined || line.trim() === "";
const isRule = (line) => RULE.test(line.replace(/\s/g, ""));
const isQuote = (line) => line.startsWith(">");
const isDashes = (line) => isShort(line) && line.includes("|") && line.includes("-") && DASHES.test(line);
const isTable = (line, next) => line.includes("|") && next !== undefined && isDashes(next);
const isHeading = (line) => isShort(line) && HEADING.test(line);

function begins(line, next) {
  return FENCE.test(line) || isHeading(line) || ITEM.test(line) || isRule(line) || isQuote(line) || isTable(line, next);
}

// One block, and the line after it.
function block(lines, at, references, depth) {
  const line = lines[at];
  const upTo = (ends) => {
    let end = at + 1;
    while (end < lines.length && !ends(lines[end], lines[end + 1])) end += 1;
    return end;
  };
  const fence = FENCE.exec(line);
  if (fence) {
    const end = upTo((each) => each.trim().startsWith(fence[1]));
    return [h("pre", null, h("code", null, lines.slice(at + 1, end).join("\n"))), end + 1];
  }
  if (isHeading(line)) {
    const [, marks, title] = HEADING.exec(line);
    return [h(`h${Math.min(6, marks.length + 2)}`, null, inline(title, references)), at + 1];
  }
  if (isTable(line, lines[at + 1])) {
    const end = upTo((each) => !each.includes("|"));
    return [table(lines.slice(at, end), references), end];
  }
  if (isRule(line)) return [h("hr"), at + 1];
  if (isQuote(line) && depth < DEEPEST) {
    const end = upTo((each) => !isQuote(each));
    const inside = lines.slice(at, end).map((each) => each.replace(/^> ?/, ""));
    return [h("blockquote", null, blocks(inside, references, depth + 1)), end];
  }
  if (ITEM.test(line)) return list(lines, at, references, depth);
  const end = upTo((each, next) => isBlank(each) || begins(each, next));
  return [h("p", null, inline(lines.slice(at, end).join("\n"), references)), end];
}

function blocks(lines, references, depth) {
  const drawn = [];
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at])) at += 1;
    else {
      const [element, next] = block(lines, at, references, depth);
      drawn.push(element);
      at = next;
    }
  }
  return all(drawn);
}

// Takes the lines that define a reference out of the text, and adds them to the references.
function withoutReferences(lines, references) {
  let fence = null;
  return lines.filter((line) => {
    const mark = FENCE.exec(line)?.[1];
    if (fence ? line.trim().startsWith(fence) : mark) fence = fence ? null : mark;
    const found = !fence && isShort(line) && REFERENCE.exec(line);
    if (found) references.set(found[1].toLowerCase(), found[2]);
    return !found;
  });
}

// Shows the text as it is if it cannot be drawn, or only with more elements than a browser draws at once.
export function Markdown({ source }) {
  left = MOST_ELEMENTS;
  try {
    const references = new Map();
    const lines = withoutReferences(source.replace(/\r\n?/g, "\n").split("\n"), references);
    return el("div", "crew-markdown", blocks(lines, references, 0));
  } catch {
    return element("pre", { tabIndex: 0, "aria-label": "Raw text" }, source);
  }
}
