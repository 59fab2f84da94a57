// Overview of all values: a point and an interval each, in the order of the rows.

function makeOverview(canvas, choose) {
  const margin = { left: 70, right: 10, top: 10, bottom: 38 };
  let state = { order: new Uint32Array(), logarithmic: true, matches: null, first: 0, length: 0, axis: "" };
  let ranks = null;
  let pointed = 0;

  function draw() {
    const { context, width, height } = clearedCanvas(canvas, window.innerWidth < 600 ? 240 : 300);
    const { order } = state;
    const bend = typicalReach();
    let low = -bend, high = bend;
    for (const i of order) {
      low = Math.min(low, values.low(i));
      high = Math.max(high, values.high(i));
    }
    const shares = bentScale(low, high, height - margin.bottom, margin.top, bend);
    ranks = rankScale(order.length, margin.left + 6, width - margin.right - 6, state.logarithmic);
    drawFrame(context, width, height, shares, bend);
    drawWindow(context, height);
    drawValues(context, order, shares.place, null, colour("--accent"), colour("--accent-soft"));
    if (state.matches !== null) drawValues(context, order, shares.place, state.matches, colour("--second"), colour("--second"));
    canvas.dataset.drawn = String(order.length);
  }

  function drawFrame(context, width, height, shares, bend) {
    const top = shares.place(bend), bottom = shares.place(-bend);
    context.fillStyle = colour("--band");
    context.fillRect(margin.left, top, width - margin.left - margin.right, bottom - top);
    gridlines(context, shares, margin.left, width - margin.right);
    for (const rank of ranks.ticks) {
      const last = ranks.place(rank) > width - 60;
      context.textAlign = last ? "right" : "center";
      context.fillText(whole(rank + 1), last ? Math.min(width - 2, ranks.place(rank) + 12) : ranks.place(rank), height - margin.bottom + 14);
    }
    context.textAlign = "center";
    context.fillText(state.axis, (margin.left + width) / 2, height - 8);
    const titles = ["Share (logarithmic outside the band)", "Share (log. outside the band)"];
    const room = height - margin.top - margin.bottom;
    const title = titles.find((one) => context.measureText(one).width <= room) ?? "Share";
    context.save();
    context.translate(12, margin.top + room / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(title, 0, 0);
    context.restore();
  }

  // Mark the rows shown above.
  function drawWindow(context, height) {
    if (state.matches !== null || state.length === 0) return;
    const from = ranks.place(state.first) - 5;
    const to = ranks.place(Math.min(state.order.length, state.first + state.length) - 1) + 5;
    context.fillStyle = colour("--second");
    context.fillRect(from, height - margin.bottom + 1, Math.max(4, to - from), 3);
  }

  function drawValues(context, order, place, only, ink, paler) {
    const size = order.length > 2000 ? 2 : 4;
    context.strokeStyle = paler;
    context.lineWidth = order.length > 2000 ? 1 : 1.5;
    context.beginPath();
    for (let rank = 0; rank < order.length; rank++) {
      if (only !== null && !only.has(order[rank])) continue;
      const x = ranks.place(rank);
      context.moveTo(x, place(values.low(order[rank])));
      context.lineTo(x, place(values.high(order[rank])));
    }
    context.stroke();
    context.lineWidth = 1;
    context.fillStyle = ink;
    for (let rank = 0; rank < order.length; rank++) {
      if (only !== null && !only.has(order[rank])) continue;
      const y = place(values.estimate[order[rank]]);
      context.fillRect(ranks.place(rank) - size / 2, y - size / 2, size, size);
    }
  }

  function point(rank, x, y) {
    pointed = rank;
    const i = state.order[rank];
    canvas.setAttribute("aria-valuenow", String(rank + 1));
    canvas.setAttribute("aria-valuetext", asText(i));
    showTooltip(i, x, y);
  }

  canvas.addEventListener("pointermove", (event) => {
    if (ranks === null || state.order.length === 0) return;
    point(ranks.rank(event.offsetX), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", hideTooltip);
  canvas.addEventListener("blur", hideTooltip);
  canvas.addEventListener("click", () => choose(pointed));
  canvas.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round(state.order.length / 20));
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageDown: far, PageUp: -far, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") return choose(pointed);
    if (!(event.key in moves) || state.order.length === 0) return;
    event.preventDefault();
    const rank = Math.min(state.order.length - 1, Math.max(0, pointed + moves[event.key]));
    const box = canvas.getBoundingClientRect();
    point(rank, box.left + ranks.place(rank), box.top + margin.top);
  });

  const soon = redrawOnChange(canvas, draw);
  return (next) => {
    state = next;
    pointed = 0;
    canvas.setAttribute("aria-valuemax", String(Math.max(1, state.order.length)));
    canvas.setAttribute("aria-valuenow", "1");
    if (state.order.length > 0) canvas.setAttribute("aria-valuetext", asText(state.order[0]));
    soon();
  };
}
