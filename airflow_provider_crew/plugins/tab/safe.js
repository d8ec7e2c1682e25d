// Values from a crew, made safe to show and to copy: texts that hide nothing, and links that cannot mislead.
import { el, h } from "./elements.js";

// A terminal obeys these.
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
// Invisible, or they change the direction of the text around them, so a text could look like another one. Some scripts
// and emoji need joiners and variation selectors. U+2800 is a blank.
const HIDDEN = new RegExp(`${CONTROLS.source}|[\\u2800\\ufff9-\\ufffb]|(?![\\u200c\\u200d\\ufe00-\\ufe0f])\\p{Default_Ignorable_Code_Point}`, "gu");
const DOMAIN = /(?:[\p{L}\p{N}-]{1,63}\.){1,10}[\p{L}]{2,24}/u;

export const visible = (text) =>
  text.replace(HIDDEN, (each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

export const withoutControls = (text) => text.replace(CONTROLS, "");
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

function looksLikeAnother(label, { host, username }) {
  const named = DOMAIN.exec(label.normalize("NFKC"))?.[0].toLowerCase();
  const isNamed = named === undefined || [named, `www.${named}`].includes(host.split(":")[0]);
  return !isNamed || username !== "" || host.includes("xn--");
}

export function Link({ address, label = "", className, children }) {
  const url = safeUrl(address);
  if (url === null) return children;
  const properties = { className, href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer" };
  return h("a", properties, children, looksLikeAnother(label, url) ? el("span", "crew-host", ` (${url.host})`) : null);
}
