// A small part of Markdown as React elements. What is not in this list is shown as the text that it is: no HTML, no
// images, no addresses but http and https. Each search has a limit, so that no text takes long.
const { Children, createElement: h } = globalThis.React;

const DEEPEST = 5;
const LONGEST = 20000;
const LONGEST_LINE = 1000;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
// With the flag s, a dot matches U+2028 as well, so the rest always fits and no space of a line is tried twice.
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/s;
const ITEM = /^( {0,20})([-*+]|\d{1,9}[.)])\s+(.*)$/s;
const RULE = /^(-{3,}|\*{3,}|_{3,})$/;
const DASHES = /^[\s:|-]+$/;

const ADDRESS = String.raw`https?:\/\/[^\s()<>]{1,1000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,1000})?`;
const INLINE = new RegExp(
  [
    String.raw`\\([!-\/:-@[-\`{-~])`,
    "`([^`\\n]{1,1000})`",
    String.raw`!?\[([^\]\n]{0,500})\]\((${ADDRESS})(?:\s"[^"\n]{0,200}")?\)`,
    String.raw`(${ADDRESS})`,
    String.raw`\*\*(?=\S)([^\n]{1,500}?)\*\*`,
    String.raw`\*(?=\S)([^*\n]{1,500})\*`,
    String.raw`(?<!\w)__(?=\S)([^_\n]{1,500})__(?!\w)`,
    String.raw`(?<!\w)_(?=\S)([^_\n]{1,500})_(?!\w)`,
    String.raw`~~(?=\S)([^~\n]{1,500})~~`,
    String.raw` {2,20}\n`,
  ].join("|"),
  "g",
);
const END_OF_SENTENCE = /[.,;:!?'"*_~\]]{1,20}$/;

// The address as a browser reads it, or nothing.
export function safeAddress(told) {
  try {
    const { protocol, href } = new URL(told);
    return protocol === "http:" || protocol === "https:" ? href : null;
  } catch {
    return null;
  }
}

export function Link({ address, children }) {
  const href = safeAddress(address);
  if (href === null) return children;
  return h("a", { href, title: href, target: "_blank", rel: "noopener noreferrer" }, children);
}

function inline(source, depth = 0) {
  if (depth > DEEPEST || source.length > LONGEST) return [source];
  const found = [];
  let from = 0;
  for (const match of source.matchAll(INLINE)) {
    const [all, escaped, code, label, target, bare, strong, em, strong2, em2, struck] = match;
    found.push(source.slice(from, match.index));
    from = match.index + all.length;
    const inner = (tag, body) => h(tag, null, inline(body, depth + 1));
    if (escaped !== undefined) found.push(escaped);
    else if (code !== undefined) found.push(h("code", null, code));
    else if (target !== undefined) found.push(h(Link, { address: target }, label ? inline(label, DEEPEST) : target));
    else if (bare !== undefined) {
      const address = bare.replace(END_OF_SENTENCE, "");
      found.push(h(Link, { address }, address));
      from -= bare.length - address.length;
    } else if (strong ?? strong2) found.push(inner("strong", strong ?? strong2));
    else if (em ?? em2) found.push(inner("em", em ?? em2));
    else if (struck !== undefined) found.push(inner("del", struck));
    else found.push(h("br"));
  }
  return all([...found, source.slice(from)]);
}

// With the keys that React asks for.
const all = (elements) => Children.toArray(elements);

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").slice(0, 50);

function table(lines) {
  const row = (tag, line) => h("tr", null, all(cells(line).map((cell) => h(tag, null, inline(cell.trim())))));
  const [head, , ...rest] = lines;
  return h(
    "div",
    { className: "crew-wide", tabIndex: 0, role: "region", "aria-label": "Table" },
    h("table", null, h("thead", null, row("th", head)), h("tbody", null, all(rest.map((line) => row("td", line))))),
  );
}

// Items that stand deeper belong to the item above them.
function items(lines, depth) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(mark);
  const grouped = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && (match[1].length <= indent.length || depth >= DEEPEST)) grouped.push({ body: [match[3]], deeper: [] });
    else if (match || grouped.at(-1).deeper.length) grouped.at(-1).deeper.push(line);
    else grouped.at(-1).body.push(line.trim());
  }
  const drawn = grouped.map(({ body, deeper }) =>
    h("li", null, inline(body.join("\n")), deeper.length ? items(deeper, depth + 1) : null),
  );
  return h(ordered ? "ol" : "ul", ordered ? { start: parseInt(mark, 10) } : null, all(drawn));
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
function block(lines, at, depth) {
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
    return [h(`h${Math.min(6, marks.length + 3)}`, null, inline(title)), at + 1];
  }
  if (isRule(line)) return [h("hr"), at + 1];
  if (isTable(line, lines[at + 1])) {
    const end = upTo((each) => !each.includes("|"));
    return [table(lines.slice(at, end)), end];
  }
  if (isQuote(line) && depth < DEEPEST) {
    const end = upTo((each) => !isQuote(each));
    const inside = lines.slice(at, end).map((each) => each.replace(/^> ?/, ""));
    return [h("blockquote", null, blocks(inside, depth + 1)), end];
  }
  if (ITEM.test(line)) {
    const end = upTo((each) => isBlank(each) || (begins(each) && !ITEM.test(each)));
    return [items(lines.slice(at, end), 0), end];
  }
  const end = upTo((each, next) => isBlank(each) || begins(each, next));
  return [h("p", null, inline(lines.slice(at, end).join("\n"))), end];
}

function blocks(lines, depth) {
  const drawn = [];
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at])) at += 1;
    else {
      const [element, next] = block(lines, at, depth);
      drawn.push(element);
      at = next;
    }
  }
  return all(drawn);
}

export function Markdown({ source }) {
  return h("div", { className: "crew-markdown" }, blocks(source.replace(/\r\n?/g, "\n").split("\n"), 0));
}
