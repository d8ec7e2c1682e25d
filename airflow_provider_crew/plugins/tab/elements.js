// Shorthand for React elements. Every text becomes a text node, so no text can become markup.
export const { Children, Component, Fragment, createElement: h, useEffect, useRef, useState } = globalThis.React;

export const el = (tag, className, ...children) => h(tag, { className }, ...children);
// Gives each element of a list the key that React needs.
export const all = (elements) => Children.toArray(elements);
export const button = (label, onClick, properties = {}) => h("button", { type: "button", onClick, ...properties }, label);

const Contents = ({ children }) => children();

// Draws its contents, or the raw text if that fails.
export class OrRaw extends Component {
  state = { hasFailed: false };
  static getDerivedStateFromError = () => ({ hasFailed: true });
  render() {
    const { raw, children } = this.props;
    return this.state.hasFailed ? h("pre", { tabIndex: 0, "aria-label": "Raw text" }, raw()) : h(Contents, null, children);
  }
}

// The time in seconds, renewed every second, without drawing anything else again.
function useNow() {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [d, h, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${d}d ${h}h`;
  if (h) return `${h}h ${String(m).padStart(2, "0")}m`;
  return m ? `${m}m ${String(s).padStart(2, "0")}s` : `${s}s`;
}

export const Since = ({ time }) => el("span", "crew-clock", duration(useNow() - time));
export const Until = ({ time }) => el("span", "crew-clock", duration(time - useNow()));

// Nothing is shown until the next push is overdue.
export function Seen({ time, staleAfter }) {
  const age = useNow() - time;
  return age > staleAfter ? el("span", "crew-quiet crew-clock", `Seen ${duration(age)} ago`) : null;
}

// Draws its contents only while it is open.
export function Folded({ title, isOpenAtFirst = false, children }) {
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  const onToggle = (event) => setOpen(event.currentTarget.open);
  return h("details", { open: isOpen, onToggle }, h("summary", null, ...all(title)), isOpen && children());
}
