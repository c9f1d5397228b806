// Suggestions of the search box: a combobox with a list, after the pattern of WAI-ARIA. Without this
// script the box is a form that leads to the page of results.
(function () {
  "use strict";

  function attach() {
    var box = document.querySelector("[data-suggestions]");
    if (!box || box.getAttribute("role") === "combobox") return;

    var pause = 150; // ms after the last key
    var list = document.createElement("ul");
    list.id = "find-options";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Suggestions");
    list.hidden = true;
    box.after(list);
    box.setAttribute("role", "combobox");
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-controls", list.id);
    box.setAttribute("aria-expanded", "false");

    var timer = 0, request = null, at = -1;

    function options() { return list.querySelectorAll("[role=option]"); }
    function choose(n) {
      var all = options();
      at = all.length === 0 || n < -1 ? all.length - 1 : n >= all.length ? -1 : n;
      all.forEach(function (o, i) { o.setAttribute("aria-selected", String(i === at)); });
      if (at < 0) box.removeAttribute("aria-activedescendant");
      else {
        box.setAttribute("aria-activedescendant", all[at].id);
        all[at].scrollIntoView({ block: "nearest" });
      }
    }
    function show(open) {
      list.hidden = !open;
      box.setAttribute("aria-expanded", String(open));
      if (!open) choose(-1);
    }
    function stop() {
      window.clearTimeout(timer);
      if (request) request.abort();
      request = null;
    }
    function ask() {
      stop();
      var text = box.value.trim();
      if (!text) {
        show(false);
        return;
      }
      request = new AbortController();
      window.outboxweb.get(box.dataset.suggestions + "?q=" + encodeURIComponent(text), request.signal)
        .then(function (answer) { return answer.ok && answer.headers.get("Outboxweb") ? answer.text() : ""; })
        .then(function (html) {
          var parsed = new DOMParser().parseFromString("<ul>" + html + "</ul>", "text/html");
          list.replaceChildren.apply(list, parsed.querySelectorAll("li[role=option]"));
          list.dataset.text = text; // what these are for
          at = -1;
          show(options().length > 0 && document.activeElement === box);
        })
        .catch(function () { /* a later key asked again, or the server is away */ });
    }
    function open(option) {
      stop();
      window.location.assign(option.dataset.href);
    }

    box.addEventListener("input", function () {
      window.clearTimeout(timer);
      timer = window.setTimeout(ask, pause);
    });
    box.addEventListener("keydown", function (evt) {
      if (evt.isComposing) return;
      if (evt.key === "Escape" && !list.hidden) {
        stop();
        show(false);
        evt.preventDefault();
      } else if (evt.key === "ArrowDown" || evt.key === "ArrowUp") {
        evt.preventDefault();
        if (list.hidden) {
          if (options().length > 0 && box.value.trim()) show(true);
          else ask();
          return;
        }
        choose(at + (evt.key === "ArrowDown" ? 1 : -1));
      }
    });
    box.form.addEventListener("submit", function (evt) { // Enter
      stop();
      if (list.hidden || at < 0) return;
      evt.preventDefault();
      open(options()[at]);
    });
    box.addEventListener("blur", function () { stop(); show(false); });
    list.addEventListener("mousedown", function (evt) { evt.preventDefault(); }); // keeps the focus in the box
    list.addEventListener("click", function (evt) {
      var option = evt.target.closest && evt.target.closest("[role=option]");
      if (option) open(option);
    });
  }

  if (!window.fetch || !window.AbortController) return;
  attach();
  document.addEventListener("htmx:afterSwap", attach); // a form's answer may replace the whole page
})();
