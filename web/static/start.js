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

  window.addEventListener("load", function () {
    painted(function () {
      urls.forEach(function (url) {
        var script = document.createElement("script");
        script.src = url;
        script.async = false; // in this order
        document.head.append(script);
      });
    });
  });
})();
