// The keys [ and ] go to the event before and behind.
(function () {
  "use strict";

  document.addEventListener("keydown", function (evt) {
    if (evt.ctrlKey || evt.metaKey || evt.defaultPrevented || (evt.key !== "[" && evt.key !== "]")) return;
    if (evt.target.closest && evt.target.closest("input, textarea, select, dialog")) return;
    var link = document.querySelector("[data-step='" + evt.key + "']");
    if (link) link.click();
  });
})();
