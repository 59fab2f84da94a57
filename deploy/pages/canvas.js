// Canvases: as sharp as the screen, in the page's colours, drawn again when either changes.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Clear a canvas and give its context in CSS pixels.
function begun(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "12px " + colour("--sans");
  context.textBaseline = "middle";
  return { context, width, height };
}

function keepDrawn(canvas, draw) {
  let asked = false;
  const soon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
  new ResizeObserver(soon).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  matchMedia("print").addEventListener("change", draw);  // at once: paper does not wait
  return soon;
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
