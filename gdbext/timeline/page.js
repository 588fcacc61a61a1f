// Zoom, search and keys for the pages of llm-record. No network, no storage; text from a process is only ever read as text.
"use strict";
(() => {
  const num = (element, name) => parseFloat(element.getAttribute(name));

  // A flame graph: a click makes a call as wide as the page, Escape or a click on the top shows all.
  const flames = [...document.querySelectorAll("svg.flame")].map((svg) => {
    const width = svg.viewBox.baseVal.width;
    const calls = [...svg.querySelectorAll("g")].map((g) => {
      const box = g.querySelector("rect"), label = g.querySelector("text");
      const about = box.querySelector("title").textContent;
      return {g, box, label, about, name: g.dataset.name, x: num(box, "x"), width: num(box, "width"), y: num(box, "y")};
    });
    const zoom = (to) => {
      for (const call of calls) {
        const above = call.y < to.y && call.x <= to.x + 0.01 && call.x + call.width >= to.x + to.width - 0.5;
        const within = call.y >= to.y && call.x >= to.x - 0.01 && call.x + call.width <= to.x + to.width + 0.5;
        call.g.style.display = above || within ? "" : "none";
        call.g.style.opacity = above ? "0.6" : "";
        const x = above ? 0 : ((call.x - to.x) / to.width) * width, own = above ? width : (call.width / to.width) * width;
        call.box.setAttribute("x", x.toFixed(2));
        call.box.setAttribute("width", Math.max(own, 0.3).toFixed(2));
        call.label.setAttribute("x", (x + 3).toFixed(2));
        call.label.textContent = own > 20 ? call.name.slice(0, Math.floor(own / 6.7)) : "";
      }
    };
    calls.forEach((call) => call.g.addEventListener("click", () => zoom(call)));
    return {calls, width, reset: () => calls.length && zoom(calls[0])};
  });

  // The timeline: drag over a part of it to see that part alone, + and - and the arrow keys move, Escape shows all.
  const lines = [...document.querySelectorAll("svg.timeline")].map((svg) => {
    const left = Number(svg.dataset.left), width = svg.viewBox.baseVal.width - left;
    const bars = [...svg.querySelectorAll("rect")].map((e) => ({e, x: num(e, "x"), width: num(e, "width")}));
    const marks = [...svg.querySelectorAll(".tick")].map((e) => ({e, x: Number(e.dataset.x)}));
    let from = 0, part = 1;
    const draw = () => {
      part = Math.min(1, Math.max(part, 1e-4));
      from = Math.min(1 - part, Math.max(0, from));
      const at = (x) => left + ((x - left) / width - from) / part * width;
      for (const bar of bars) {
        const x = Math.max(left, at(bar.x)), end = Math.min(left + width, at(bar.x + bar.width));
        bar.e.style.display = end > x ? "" : "none";
        bar.e.setAttribute("x", x.toFixed(1));
        bar.e.setAttribute("width", Math.max(0.5, end - x).toFixed(1));
      }
      for (const mark of marks) {
        const x = at(mark.x);
        mark.e.style.display = x >= left && x <= left + width ? "" : "none";
        mark.e.setAttribute("transform", `translate(${(x - mark.x).toFixed(1)})`);
      }
    };
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return Math.min(1, Math.max(0, (((event.clientX - box.left) / box.width) * (left + width) - left) / width));
    };
    let begun = null;
    svg.addEventListener("mousedown", (event) => { begun = place(event); event.preventDefault(); });
    window.addEventListener("mouseup", (event) => {
      if (begun === null) return;
      const [a, b] = [begun, place(event)].sort((one, other) => one - other);
      begun = null;
      if (b - a > 0.005) { from += a * part; part *= b - a; draw(); }
    });
    return {
      reset: () => { from = 0; part = 1; draw(); },
      zoom: (factor) => { from += part * (1 - factor) / 2; part *= factor; draw(); },
      move: (share) => { from += share * part; draw(); },
    };
  });

  const search = document.querySelector("#search"), found = document.querySelector("#found");
  const look = () => {
    const words = search.value.toLowerCase();
    for (const flame of flames) {
      let share = 0;
      const ends = new Map();
      for (const call of flame.calls) {
        const hit = words && call.name.toLowerCase().includes(words);
        call.box.classList.toggle("hit", Boolean(hit));
        if (!hit) continue;
        const inside = [...ends].some(([x, width]) => call.x >= x - 0.01 && call.x + call.width <= x + width + 0.5);
        if (!inside) { ends.set(call.x, call.width); share += call.width / flame.width; }
      }
      found.textContent = words ? `${(100 * share).toFixed(1)} % of the time` : "";
    }
  };
  const reset = () => [...flames, ...lines].forEach((each) => each.reset());
  if (search) search.addEventListener("input", look);
  const keys = {
    "+": () => lines.forEach((l) => l.zoom(0.5)),
    "-": () => lines.forEach((l) => l.zoom(2)),
    ArrowLeft: () => lines.forEach((l) => l.move(-0.2)),
    ArrowRight: () => lines.forEach((l) => l.move(0.2)),
    Escape: reset,
    "/": () => search && search.focus(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target === search;
    if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
    if (!(event.key in keys)) return;
    if (typing) { search.value = ""; look(); search.blur(); }
    keys[event.key]();
    event.preventDefault();
  });
})();
