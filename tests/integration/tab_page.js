// Elements are plain objects. draw() writes them as text, with the attributes that tests compare. Nothing is drawn
// again if a state changes, but noted() gets each new one.
globalThis.React = {
  Component: class {
    constructor(props) {
      this.props = props;
    }
  },
  Children: { toArray: (all) => [all].flat(Infinity).filter((each) => each != null && each !== false) },
  Fragment: ({ children }) => children,
  createElement: (type, props, ...children) => {
    const inside = children.length === 1 ? children[0] : children;
    const all = { ...props, ...(children.length && { children: inside }) };
    return { type, children, props: all };
  },
  useEffect: () => undefined,
  useRef: (current) => ({ current }),
  useState: (value) => [globalThis.states?.length ? states.shift() : value, (next) => globalThis.noted?.(next)],
};
// What a component draws. A boundary draws again what has failed, as deep as it may be.
const drawnBy = ({ type, props }, use) => {
  if (!type.prototype?.render) return use(type(props));
  const made = new type(props);
  try {
    return use(made.render());
  } catch (error) {
    made.state = type.getDerivedStateFromError(error);
    return use(made.render());
  }
};
// The elements within one, at any depth, as a browser would make them.
globalThis.elements = (node) => {
  if (Array.isArray(node)) return node.flatMap(elements);
  if (typeof node?.type === "function") return drawnBy(node, elements);
  return node?.type ? [node, ...elements(node.props.children)] : [];
};
globalThis.draw = (node) => {
  if (node == null || typeof node === "boolean") return "";
  if (Array.isArray(node)) return node.map(draw).join("");
  if (typeof node !== "object") return String(node);
  const { type, props } = node;
  if (typeof type === "function") return drawnBy(node, draw);
  const shown = { href: props.href, start: props.start, align: props.style?.textAlign };
  const given = Object.entries(shown).filter(([, value]) => value !== undefined);
  const attributes = given.map(([name, value]) => ` ${name}=${value}`).join("");
  return `<${type}${attributes}>${draw(props.children)}</${type}>`;
};
