// Progressive enhancement of lists: rows are selected by mouse or keyboard, and while some are
// selected the list does not refresh but says what has changed.
(function () {
  "use strict";

  // The values of the selected rows. They outlive the elements, which a refresh may replace.
  var chosen = new Set();
  var anchor = null; // the last clicked value: the start of a range
  var letThrough = false; // the reader requested the held-back changes

  function all(selector, within) {
    return Array.prototype.slice.call((within || document).querySelectorAll(selector));
  }
  function boxes() { return all("form[data-choosing] input[name=rows]"); }
  function liveOf(el) { return el && el.closest && el.closest("[data-live]"); }

  // The page as the reader left it: ticked rows are selected, missing ones are not.
  function tell() {
    var form = document.querySelector("form[data-choosing]");
    var list = boxes(), n = chosen.size;
    list.forEach(function (box) {
      var row = box.closest("tr");
      if (row) row.classList.toggle("ticked", box.checked);
    });
    var live = document.querySelector("[data-live]");
    if (live) live.setAttribute("data-selected", String(n));
    if (!form) return;
    var note = form.querySelector("[data-chosen]");
    if (note) note.textContent = n + " selected";
    var button = form.querySelector("[data-testid=requeue-selected]");
    if (button) button.disabled = n === 0;
    var head = form.querySelector("[data-all]");
    if (head) {
      head.checked = list.length > 0 && n === list.length;
      head.indeterminate = n > 0 && n < list.length;
    }
  }

  function read() {
    chosen = new Set(boxes().filter(function (b) { return b.checked; }).map(function (b) { return b.value; }));
    if (chosen.size === 0 && holding()) show();
    tell();
  }

  // After a refresh: selected rows that still exist are selected again.
  function restore() {
    boxes().forEach(function (b) { b.checked = chosen.has(b.value); });
    chosen = new Set(boxes().filter(function (b) { return b.checked; }).map(function (b) { return b.value; }));
    tell();
  }

  function choose(box, value, range) {
    var list = boxes();
    var from = list.findIndex(function (b) { return b.value === anchor; });
    var to = list.indexOf(box);
    box.checked = value;
    if (range && from >= 0) {
      list.slice(Math.min(from, to), Math.max(from, to) + 1).forEach(function (b) { b.checked = value; });
    }
    anchor = box.value;
    read();
  }

  document.addEventListener("click", function (evt) {
    var box = evt.target;
    if (!(box instanceof HTMLInputElement) || box.type !== "checkbox" || !box.closest("form[data-choosing]")) return;
    if (box.hasAttribute("data-all")) {
      boxes().forEach(function (b) { b.checked = box.checked; });
      read();
    } else {
      choose(box, box.checked, evt.shiftKey);
    }
  });

  // A shift-click would also select the text between.
  document.addEventListener("mousedown", function (evt) {
    if (evt.shiftKey && evt.target.closest && evt.target.closest(".pick")) evt.preventDefault();
  });

  // The changes that a refresh would make, by the revisions of the rows.
  function revisions(root) {
    var found = new Map();
    all("tr[data-rev]", root).forEach(function (row) { found.set(row.id, row.getAttribute("data-rev")); });
    return found;
  }
  function differences(shown, answer) {
    var n = { changed: 0, added: 0, gone: 0 };
    answer.forEach(function (revision, id) {
      if (!shown.has(id)) n.added++;
      else if (shown.get(id) !== revision) n.changed++;
    });
    shown.forEach(function (_, id) { if (!answer.has(id)) n.gone++; });
    return n;
  }

  function note() { return document.querySelector("[data-changes]"); }
  function holding() { return !!note() && !note().hidden; }
  function hold(n) {
    var el = note(), total = n.changed + n.added + n.gone;
    if (!el) return;
    el.hidden = total === 0;
    var text = total + " changed";
    var said = el.querySelector("[data-changed]");
    if (said.textContent !== text) said.textContent = text;
    said.title = n.changed + " changed, " + n.added + " new, " + n.gone + " gone";
  }
  function show() {
    var live = document.querySelector("[data-live]");
    if (!live || !window.htmx) return;
    letThrough = true;
    if (document.activeElement && note().contains(document.activeElement)) {
      var first = boxes()[0];
      if (first) first.focus({ preventScroll: true });
    }
    live.removeAttribute("data-etag");
    window.htmx.trigger(live, "look");
  }
  document.addEventListener("click", function (evt) {
    if (evt.target.closest && evt.target.closest("[data-show]")) show();
  });

  // 10-page.js has already recorded the answer's tag. Content that is not swapped in must not count as
  // shown.
  document.addEventListener("htmx:beforeSwap", function (evt) {
    var live = liveOf(evt.detail.requestConfig && evt.detail.requestConfig.elt);
    if (!live || evt.detail.xhr.status !== 200 || !evt.detail.shouldSwap || !live.querySelector("[data-list]")) return;
    if (chosen.size === 0 || letThrough) {
      letThrough = false;
      hold({ changed: 0, added: 0, gone: 0 });
      return;
    }
    evt.detail.shouldSwap = false;
    live.removeAttribute("data-etag");
    var answer = new DOMParser().parseFromString(evt.detail.xhr.responseText, "text/html");
    hold(differences(revisions(live), revisions(answer)));
  });
  document.addEventListener("htmx:afterSwap", function (evt) {
    if (liveOf(evt.detail.elt)) restore();
  });

  // Keys: j and k move from row to row, x ticks the row under the cursor, Enter opens it. The cursor
  // is the row that has, or last had, the focus.
  var cursor = null; // the row's id
  function rows() { return all("table[data-list] > tbody > tr"); }
  function current() {
    var active = document.activeElement, row = active && active.closest && active.closest("table[data-list] > tbody > tr");
    if (row) return row;
    return (cursor && document.getElementById(cursor)) || null;
  }
  function linkOf(row) { return row.querySelector("th[scope=row] a, td a"); }
  function go(step) {
    var list = rows(), at = list.indexOf(current());
    var next = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + step))];
    if (!next) return false;
    cursor = next.id;
    var link = linkOf(next);
    if (link) link.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
    return true;
  }
  function tick() {
    var row = current(), box = row && row.querySelector("input[name=rows]");
    if (box) choose(box, !box.checked, false);
    return !!box;
  }
  function open() {
    var row = current(), link = row && linkOf(row);
    if (link) link.click();
    return !!link;
  }
  function typing(el) {
    if (!el || !el.tagName) return false;
    return el.isContentEditable || /^(SELECT|TEXTAREA)$/.test(el.tagName) || (el.tagName === "INPUT" && el.type !== "checkbox");
  }
  document.addEventListener("keydown", function (evt) {
    if (evt.defaultPrevented || evt.ctrlKey || evt.metaKey || evt.altKey || typing(evt.target) || document.querySelector("dialog[open]")) return;
    var el = evt.target, done = false;
    if (evt.key === "j") done = go(1);
    else if (evt.key === "k") done = go(-1);
    else if (evt.key === "x") done = tick();
    else if (evt.key === "Enter" && !evt.repeat && (el === document.body || el.id === "main" || el.name === "rows")) done = open();
    if (done) evt.preventDefault();
  });
  // Enter on a checkbox would submit the form.
  document.addEventListener("keypress", function (evt) {
    if (evt.key === "Enter" && evt.target.name === "rows") evt.preventDefault();
  });
  document.addEventListener("focusin", function (evt) {
    var row = evt.target.closest && evt.target.closest("table[data-list] > tbody > tr");
    if (row) cursor = row.id;
  });

  document.documentElement.setAttribute("data-scripts", "");
  restore();
})();
