// Tooltip, placed beside the pointer or the focus.

const tooltip = byId("tooltip");

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

// A name: untrusted text in any writing direction, never parsed as markup.
function named(text, tag = "bdi") {
  const node = element(tag, text, "name");
  node.dir = "auto";
  return node;
}

function figureList(entries) {
  const list = element("dl");
  for (const [head, text] of entries) list.append(element("dt", head), element("dd", text));
  return list;
}

function placeTooltip(nodes, x, y) {
  tooltip.replaceChildren(...nodes);
  tooltip.hidden = false;
  shownAt = window.scrollY;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - width - 8);
  const top = y + 18 + height > window.innerHeight ? y - height - 12 : y + 18;
  tooltip.style.left = Math.max(8, left) + "px";
  tooltip.style.top = Math.max(8, top) + "px";
}

// A scroll event may arrive after the tooltip is shown at the new position.
let shownAt = 0;

function hideTooltip() {
  tooltip.hidden = true;
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTooltip(); });
addEventListener("scroll", () => { if (window.scrollY !== shownAt) hideTooltip(); }, { passive: true });
