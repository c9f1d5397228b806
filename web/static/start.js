// Has the page painted before what can wait: its scripts, since every page works without them, and the
// rows of a list below the first screen.
(function () {
  "use strict";
  var root = document.documentElement;
  var urls = document.currentScript.dataset.scripts.split(" ");

  // Calls f once the first frame is on the screen: what runs before takes a processor from who draws it.
  // A hidden page has none, but watches for trouble.
  function painted(f) {
    var called = false;
    function once() {
      if (!called) f();
      called = true;
    }
    new PerformanceObserver(once).observe({ type: "paint", buffered: true });
    window.setTimeout(once, document.hidden ? 0 : 500);
  }

  // A page that the reader returns to needs its full height, to be scrolled to where it was.
  function whole() { root.setAttribute("data-whole", ""); }
  var visit = performance.getEntriesByType("navigation")[0];
  if (visit && visit.type === "navigate" && !location.hash) painted(whole);
  else whole();

  // Runs the scripts one after the other, since each needs those before. One that does not load is
  // tried once more, a second later.
  function run(i, tries) {
    if (i === urls.length) return;
    var script = document.createElement("script");
    script.src = urls[i];
    script.onload = function () { run(i + 1, 2); };
    script.onerror = function () {
      if (tries > 1) window.setTimeout(run, 1000, i, tries - 1);
    };
    document.head.append(script);
  }
  window.addEventListener("load", function () {
    painted(function () { run(0, 2); });
  });
})();
