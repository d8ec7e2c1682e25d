// Output of a crew: rendered, raw or as JSON. It can be copied and downloaded.
import { OrRaw, all, button, el, h, useEffect, useRef, useState } from "./elements.js";
import { Tree } from "./json.js";
import { pretty, visible, withoutControls } from "./safe.js";
import { Markdown } from "./markdown.js";

const SHOWN = 10000;
// A browser takes too long to draw a longer text as Markdown.
const MOST_MARKDOWN = 300000;

// Not undefined for the text of a JSON object or array.
function parsed(source) {
  try {
    return /^\s{0,100}[{[]/.test(source) ? JSON.parse(source) : undefined;
  } catch {
    return undefined;
  }
}

// Cut at the end of a line. A first line that is longer than the limit holds no links then, because it is not rendered.
function cutAtLine(source) {
  const end = source.lastIndexOf("\n", SHOWN);
  return end > 0 ? source.slice(0, end) : source.slice(0, SHOWN);
}

export function Output({ label, source, json }) {
  const own = parsed(source);
  const value = json ?? own;
  const isMarkdown = source !== "" && own === undefined && source.length <= MOST_MARKDOWN;
  const views = [isMarkdown && "Rendered", value !== undefined && "JSON", source && "Raw"].filter(Boolean);
  const [chosen, choose] = useState(null);
  const [isWhole, setWhole] = useState(false);
  const view = views.includes(chosen) ? chosen : views[0];
  const isCut = view !== "JSON" && source.length > SHOWN && !isWhole;
  const shown = visible(isCut ? cutAtLine(source) : source);
  const isLongLine = isCut && !shown.includes("\n");
  const whole = () => (view === "JSON" ? pretty(value, source) : source);
  const extension = { Rendered: "md", JSON: "json", Raw: "txt" }[view];
  const choices = views.map((each) => button(each, () => choose(each), { "aria-pressed": each === view }));
  return el(
    "div",
    "crew-card crew-output",
    h(
      "div",
      { className: "crew-tools", role: "group", "aria-label": `View of ${label}` },
      views.length > 1 && el("span", "crew-views", ...all(choices)),
      el("span", "crew-actions", h(Copy, { text: whole, label }), button("Download", () => download(whole(), `${label}.${extension}`))),
    ),
    h(OrRaw, { key: view, raw: () => shown }, () => {
      if (view === "JSON") return h(Tree, { value });
      if (view === "Rendered" && !isLongLine) return h(Markdown, { source: shown });
      return h("pre", { tabIndex: 0, "aria-label": "Raw text" }, shown);
    }),
    isCut && el("p", "crew-cut", "… ", button(`Show all ${source.length.toLocaleString()} characters`, () => setWhole(true))),
  );
}

// A function returns a text that takes long to write.
export function Copy({ text, label, isIcon = false }) {
  const place = useRef(null);
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    const timer = isCopied && setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = () => copyText(withoutControls(typeof text === "function" ? text() : text), place.current).then(setCopied);
  const icon = el("span", `crew-copy-icon${isCopied ? " crew-copied" : ""}`);
  const shown = isIcon ? icon : isCopied ? "Copied" : "Copy";
  const properties = { "aria-label": `Copy ${label}`, title: `Copy ${label}`, className: isIcon ? "crew-icon-button" : "" };
  const status = h("span", { className: "crew-unseen", role: "status" }, isCopied ? "Copied" : "");
  return h("span", { ref: place }, button(shown, copy, properties), status);
}

// A page that was loaded over plain HTTP has no clipboard, so copy from a text field as a person would.
async function copyText(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "crew-unseen";
    place.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    return isCopied;
  }
}

function download(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  link.download = name.replace(/[^\p{L}\p{N}._-]+/gu, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
