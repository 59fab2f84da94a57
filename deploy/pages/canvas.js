// Canvases in screen resolution and the page's colours, redrawn when either changes.

const painted = document.body.appendChild(document.createElement("span"));

// The colour of a custom property, for light or dark, as a canvas understands it.
function colour(name) {
  painted.style.color = "var(" + name + ")";
  return getComputedStyle(painted).color;
}

// Clear a canvas, and return its context scaled to CSS pixels.
function clearedCanvas(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "12px " + getComputedStyle(painted).fontFamily;
  context.textBaseline = "middle";
  return { context, width, height };
}

function redrawOnChange(canvas, draw) {
  let scheduled = false;
  const soon = () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; draw(); });
  };
  new ResizeObserver(soon).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  matchMedia("print").addEventListener("change", draw);  // at once, before the page is printed
  return soon;
}

// Draw a horizontal line at each tick of a scale of shares, with its label at the left.
function gridlines(context, scale, left, right) {
  context.fillStyle = colour("--muted");
  context.textAlign = "right";
  for (const share of scale.ticks) {
    context.strokeStyle = colour(share === 0 ? "--strong-line" : "--line");
    line(context, left, scale.place(share), right, scale.place(share));
    context.fillText(tick(share, scale.step), left - 8, scale.place(share));
  }
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
