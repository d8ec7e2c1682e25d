// Values from a crew, made safe to show and to copy: texts that hide nothing, and links that cannot mislead.
import { el, h } from "./elements.js";

// A terminal obeys these.
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
// Invisible, or they change the direction of the text around them, so a text could look like another one. Some scripts
// and emoji need joiners and variation selectors. U+2800 is a blank.
const HIDDEN = new RegExp(`${CONTROLS.source}|[\\u2800\\ufff9-\\ufffb]|(?![\\u200c\\u200d\\ufe00-\\ufe0f])\\p{Default_Ignorable_Code_Point}`, "gu");

export const visible = (text) =>
  text.replace(HIDDEN, (each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

export const withoutControls = (text) => text.replace(CONTROLS, "");
// No browser writes JSON that is nested too deeply.
export function pretty(value, otherwise = "This JSON is nested too deeply to be shown.") {
  try {
    return JSON.stringify(value, null, 2);
  } catch {
    return otherwise;
  }
}

export const text = (value) => visible(typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));
export const list = (value) => (Array.isArray(value) ? value : []);
// More than any time since 1970 in seconds, and than any number of tasks.
const MOST = 1e11;
export const number = (value) => (Number.isFinite(value) && Math.abs(value) < MOST ? value : null);
export const object = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});

// The address as a browser reads it, or null if it is not http or https.
function safeUrl(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url?.protocol === "http:" || url?.protocol === "https:" ? url : null;
}

export const safeAddress = (text) => safeUrl(text)?.href ?? null;

// A label may look like another address, so the host follows it. An address of its own that begins with its host needs none.
export function Link({ address, children }) {
  const url = safeUrl(address);
  if (url === null) return children;
  const isItself = children === address && address.startsWith(url.origin) && /^[/?#]?$/.test(address.charAt(url.origin.length));
  const properties = { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer" };
  return h("a", properties, children, isItself ? null : el("span", "crew-host", ` (${url.host})`));
}
