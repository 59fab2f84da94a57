"""Text that stands out too little from its ground, found by the browser that shows it."""

from typing import Final

FAINT_TEXT: Final = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((x) => x / 255)
      .map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const drawn = node.closest("script, style, noscript, svg, button:disabled");
    if (!texts || drawn || !node.checkVisibility()) continue;
    const a = light(parse(getComputedStyle(node).color).slice(0, 3)), b = light(ground(node));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.add(node.tagName + "." + node.className + " " + contrast.toFixed(2));
  }
  return [...faint];
}"""
"""Lists elements whose contrast is below 4.5 : 1 [WCAG 2.2, 1.4.3]; drawings are left out."""
