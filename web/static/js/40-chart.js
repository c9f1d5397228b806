// Charts: a crosshair with the values of a step, by mouse, touch and keyboard, at the same time in
// every chart of the page; dragging over a chart selects a range; the cells of the heatmap. The
// charts are drawn by the server and complete without this file.
(function () {
  "use strict";

  var at = null; // the time of the crosshair, in seconds since 1970
  var origin = null; // where a drag began: its chart and fraction
  var row = null; // the link of the campaign whose cell of the heatmap is read

  function all(selector, within) { return Array.prototype.slice.call((within || document).querySelectorAll(selector)); }
  function plotOf(el) { return el && el.closest && el.closest(".plot"); }

  // What all charts of the page have in common: the steps of their time.
  function axis() {
    var el = document.querySelector("svg.axes"), of = function (n) { return Number(el.getAttribute("data-" + n)); };
    return { from: of("from"), step: of("step"), steps: of("steps"), now: of("now") };
  }
  function last(a) { return Math.min(a.steps - 1, Math.floor((a.now - a.from) / a.step)); }

  // The values of a chart by layer and step, null without a record: given, or from the path of a line.
  function layers(plot, steps) {
    var given = plot.getAttribute("data-values"), scale = Number(plot.getAttribute("data-scale")), read = {};
    if (given) return given.split(";").map(function (l) { return l.split(",").map(function (v) { return v === "" ? null : Number(v); }); });
    all(".legend path", plot.parentNode).forEach(function (swatch) { read[swatch.getAttribute("class")] = new Array(steps).fill(null); });
    all("path[class^=f-],path[class^=l-]", plot).forEach(function (line) {
      var name = line.getAttribute("class").replace(" running", ""), values = read[name] = read[name] || new Array(steps).fill(null);
      line.getAttribute("d").split("M").slice(1).forEach(function (part) {
        var n = part.match(/-?\d+(\.5)?/g).map(Number), i = Math.ceil(n[0]), y = n[1];
        values[i] = 0 - y / scale;
        for (var k = n[2] === 0 ? 4 : 2; k + 1 < n.length; k += 2) values[++i] = 0 - (y += n[k + 1]) / scale;
      });
    });
    return Object.values(read);
  }

  function two(n) { return (n < 10 ? "0" : "") + n; }
  var months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  function clock(seconds, day) {
    var t = new Date(seconds * 1000);
    return (day ? months[t.getUTCMonth()] + " " + t.getUTCDate() + " " : "") + two(t.getUTCHours()) + ":" + two(t.getUTCMinutes());
  }
  function span(a, i) {
    var from = a.from + i * a.step, running = a.now < from + a.step;
    return clock(from, a.steps * a.step > 90000) + "–" + (running ? "now" : clock(from + a.step, false) + " UTC");
  }

  function number(v) { return (Math.round(v * 10) / 10).toLocaleString("en-US"); }
  function rounded(v) { return number(v < 10 ? v : Math.round(v)); }
  function text(v, unit) {
    if (v === null) return "no record";
    if (unit !== "seconds") return rounded(v);
    if (v < 1) return Math.round(v * 1000) + " ms";
    if (v < 120) return rounded(v) + " s";
    if (v < 3600) return rounded(v / 60) + " min";
    return v < 172800 ? rounded(v / 3600) + " h" : rounded(v / 86400) + " d";
  }
  // What a chart has at a step: a line for each layer, from the top down, with its colour if there are several.
  function reading(plot, a, i) {
    var names = all(".legend li", plot.parentNode), unit = plot.getAttribute("data-unit");
    var read = layers(plot, a.steps).map(function (l, k) {
      var said = names[k] && names[k].getAttribute("data-said"), name = said || (names[k] ? names[k].textContent.trim() : "");
      var least = ((said ? names[k] : plot).getAttribute("data-least") || "").split(",").indexOf(String(i)) < 0 ? "" : "at least ";
      return { text: (name.length > 36 ? name.slice(0, 35) + "…" : name) + (name && " ") + least + text(l[i], unit), known: l[i] !== null, like: names[k] && names[k].querySelector("path") };
    });
    return read.some(function (r) { return r.known; }) ? read : [{ text: "no record" }];
  }
  function words(plot, a, i) { return span(a, i) + ": " + reading(plot, a, i).map(function (r) { return r.text; }).join(", "); }

  // A shape that only this script draws.
  function shape(svg, name, className) {
    var old = svg.querySelector(":scope > ." + className);
    if (old) return old;
    var made = document.createElementNS("http://www.w3.org/2000/svg", name);
    made.setAttribute("class", className);
    return svg.appendChild(made);
  }
  function set(el, attributes) { for (var name in attributes) el.setAttribute(name, attributes[name]); }

  // Writes what is read beside the crosshair, on the side that has room.
  function write(area, lines, x) {
    var box = shape(area, "g", "readout"), rect = shape(box, "rect", "back"), said = shape(box, "text", "said");
    said.replaceChildren.apply(said, lines.map(function (line) {
      var row = document.createElementNS("http://www.w3.org/2000/svg", "tspan"), dot = row.cloneNode();
      set(row, { x: 0, dy: 15 });
      if (line.like) {
        set(dot, { fill: getComputedStyle(line.like).stroke });
        dot.textContent = "● ";
        row.append(dot);
      }
      row.append(line.text);
      return row;
    }));
    var size = said.getBBox(), room = area.getBoundingClientRect().width, to = x + 18;
    if (to + size.width > room) to = Math.max(x - size.width - 18, -50);
    set(rect, { x: -8, y: 0, width: size.width + 16, height: size.height + 8 });
    set(box, { transform: "translate(" + Math.round(to) + " 8)" });
  }

  // Draws the crosshair of one chart and what it reads, or removes them.
  function draw(plot) {
    var a = axis(), i = at === null ? -1 : Math.floor((at - a.from) / a.step), area = plot.querySelector(".area");
    if (i < 0 || i >= a.steps) {
      all(".cross,.readout", area).forEach(function (el) { el.remove(); });
      return;
    }
    var x = (i + 0.5) / a.steps;
    set(shape(area, "line", "cross"), { x1: x * 100 + "%", x2: x * 100 + "%", y1: 12, y2: 104 });
    write(area, [{ text: span(a, i) }].concat(reading(plot, a, i)), x * area.getBoundingClientRect().width);
  }
  function drawAll() { all(".plot").forEach(draw); }

  function say(what) {
    var said = document.querySelector("[data-chart-said]");
    if (said && said.textContent !== what) said.textContent = what;
  }
  function point(plot, i, aloud) {
    var a = axis();
    at = a.from + i * a.step;
    drawAll();
    if (aloud) say(words(plot, a, i));
  }
  function leave() {
    at = row = null;
    drawAll();
    say("");
  }

  function fraction(el, evt) {
    var box = el.getBoundingClientRect();
    return Math.min(1, Math.max(0, (evt.clientX - box.left) / box.width));
  }
  function stepAt(el, evt) {
    var a = axis();
    return Math.min(last(a), a.steps - 1, Math.floor(fraction(el, evt) * a.steps));
  }
  function follow(plot, evt) { point(plot, stepAt(plot.querySelector(".area"), evt), false); }

  // ---- selecting a range

  function selected(plot, from, to) {
    set(shape(plot.querySelector(".area"), "rect", "selected"), { x: Math.min(from, to) * 100 + "%", width: Math.abs(to - from) * 100 + "%", y: 26, height: 78 });
  }
  function iso(seconds) { return new Date(seconds * 1000).toISOString().replace(".000", ""); }
  // Opens a page over a range of at least five minutes, the shortest that is accepted.
  function open(page, from, to) {
    var url = new URL(page, window.location.href);
    ["range", "span", "after_seq"].forEach(function (n) { url.searchParams.delete(n); });
    url.searchParams.set("from", iso(from));
    url.searchParams.set("to", iso(Math.max(to, from + 300)));
    window.location.assign(url);
  }
  function choose(from, to) {
    var a = axis();
    open(window.location.href, a.from + Math.floor(Math.min(from, to) * a.steps) * a.step, a.from + Math.ceil(Math.max(from, to) * a.steps) * a.step);
  }

  document.addEventListener("pointerdown", function (evt) {
    var plot = plotOf(evt.target);
    if (!plot || evt.button) return;
    follow(plot, evt);
    if (evt.pointerType === "touch") return;
    origin = { plot: plot, at: fraction(plot.querySelector(".area"), evt), x: evt.clientX };
  });
  document.addEventListener("pointermove", function (evt) {
    var plot = origin ? origin.plot : plotOf(evt.target);
    if (!plot) {
      if (at !== null && !plotOf(document.activeElement)) leave();
      return;
    }
    follow(plot, evt);
    if (origin) selected(plot, origin.at, fraction(plot.querySelector(".area"), evt));
  });
  document.addEventListener("pointerup", function (evt) {
    if (!origin) return;
    var began = origin, to = fraction(began.plot.querySelector(".area"), evt);
    origin = null;
    selected(began.plot, 0, 0);
    if (Math.abs(evt.clientX - began.x) > 8) choose(began.at, to);
  });

  // ---- keys

  document.addEventListener("keydown", function (evt) {
    var plot = plotOf(evt.target);
    if (evt.key === "Escape" && origin) {
      selected(origin.plot, 0, 0);
      origin = null;
    }
    if (!plot || evt.ctrlKey || evt.metaKey || evt.altKey) return;
    var a = axis(), end = last(a);
    if (end < 0) return;
    var i = at === null ? end + (evt.key === "ArrowLeft" ? 1 : 0) : Math.floor((at - a.from) / a.step);
    var jump = evt.shiftKey ? 10 : 1;
    if (evt.key === "ArrowLeft") i -= jump;
    else if (evt.key === "ArrowRight") i += at === null ? 0 : jump;
    else if (evt.key === "Home") i = 0;
    else if (evt.key === "End") i = end;
    else if (evt.key === "Escape") {
      leave();
      return;
    } else return;
    evt.preventDefault();
    point(plot, Math.min(end, Math.max(0, i)), true);
  });
  document.addEventListener("focusout", function (evt) {
    if (plotOf(evt.target) && !plotOf(evt.relatedTarget)) leave();
  });

  // ---- the heatmap

  function readCell(svg, i) {
    var n = svg.getAttribute("data-values").split(",")[i], a = axis();
    svg.setAttribute("data-cell", i);
    row = svg.previousElementSibling.href;
    at = a.from + i * a.step;
    drawAll();
    all(".cell-mark").forEach(function (r) { r.remove(); });
    set(shape(svg, "rect", "cell-mark"), { x: i, width: 1, height: 20 });
    document.querySelector(".heat-readout").textContent = svg.previousElementSibling.textContent + ", " + span(a, i) + ": " +
      (n === "-" ? "not recorded" : n ? number(Number(n)) + (n === "1" ? " event" : " events") + " behind. Enter opens its events of that time." : "not behind, or not sampled");
  }
  function openCell(svg, i) {
    var a = axis();
    open(svg.previousElementSibling.href, a.from + i * a.step, a.from + (i + 1) * a.step);
  }
  document.addEventListener("pointermove", function (evt) {
    var svg = evt.target.closest && evt.target.closest(".heat");
    if (svg) readCell(svg, stepAt(svg, evt));
  });
  document.addEventListener("click", function (evt) {
    var svg = evt.target.closest && evt.target.closest(".heat");
    if (svg) openCell(svg, stepAt(svg, evt));
  });
  document.addEventListener("keydown", function (evt) {
    var svg = evt.target.closest && evt.target.closest(".heat");
    if (!svg || evt.ctrlKey || evt.metaKey || evt.altKey) return;
    var rows = all(".heat"), end = last(axis()), i = Number(svg.getAttribute("data-cell") || end);
    var to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: end }[evt.key];
    var by = { ArrowUp: -1, ArrowDown: 1 }[evt.key];
    if (evt.key === "Enter") openCell(svg, i);
    else if (by) {
      var next = rows[rows.indexOf(svg) + by];
      if (next) {
        readCell(next, i);
        next.focus();
      }
    } else if (to !== undefined) readCell(svg, Math.min(end, Math.max(0, to)));
    else return;
    evt.preventDefault();
  });

  // The page that was just loaded, or refreshed, shows what is being read.
  function ready() {
    all(".plot,.heat").forEach(function (el) { el.setAttribute("tabindex", "0"); });
    drawAll();
    var a = row && axis(), i = row && Math.floor((at - a.from) / a.step);
    all(".heat").forEach(function (svg) {
      if (row && svg.previousElementSibling.href === row && i >= 0 && i < a.steps) readCell(svg, i);
    });
  }
  document.addEventListener("htmx:afterSwap", ready);
  ready();
})();
