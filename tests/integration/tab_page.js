// Elements are plain objects. draw() writes them as text, with the attributes that tests compare. Nothing is drawn
// again if a state changes, but noted() gets each new one.
globalThis.React = {
  Children: { toArray: (all) => [all].flat(Infinity).filter((each) => each != null && each !== false) },
  Fragment: ({ children }) => children,
  createElement: (type, props, ...children) => {
    const inside = children.length === 1 ? children[0] : children;
    const all = { ...props, ...(children.length && { children: inside }) };
    return { type, children, props: all };
  },
  useEffect: () => undefined,
  useRef: (current) => ({ current }),
  useState: (value) => [value, (next) => globalThis.noted?.(next)],
};
// The elements within one, at any depth, as a browser would make them.
globalThis.elements = (node) => {
  if (Array.isArray(node)) return node.flatMap(elements);
  if (typeof node?.type === "function") return elements(node.type(node.props));
  return node?.type ? [node, ...elements(node.props.children)] : [];
};
globalThis.draw = (node) => {
  if (node == null || typeof node === "boolean") return "";
  if (Array.isArray(node)) return node.map(draw).join("");
  if (typeof node !== "object") return String(node);
  const { type, props } = node;
  if (typeof type === "function") return draw(type(props));
  const shown = { href: props.href, start: props.start, align: props.style?.textAlign };
  const given = Object.entries(shown).filter(([, value]) => value !== undefined);
  const attributes = given.map(([name, value]) => ` ${name}=${value}`).join("");
  return `<${type}${attributes}>${draw(props.children)}</${type}>`;
};
