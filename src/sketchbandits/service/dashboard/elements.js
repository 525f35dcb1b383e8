/** Makes and fills nodes. Text goes in as text, so nothing a server says is ever read as markup. */

const SVG = "http://www.w3.org/2000/svg";

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function element(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

export function shape(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

/** Leaves the node alone where it says so already: a selection survives, and a live region stays silent. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
