// Keys to go about with, and a page that follows a run in progress. Every page can be read and used without it.
"use strict";

const main = document.querySelector("main");

// Keys: an element with data-key is followed, pressed or entered by that key, wherever no field has the focus. What is
// on the page itself comes before the menu.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest("input, select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
    return;
  }
  if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll("[data-rows] tbody a[data-row]")];
    if (rows.length) {
      event.preventDefault();
      const at = rows.indexOf(document.activeElement);
      const next = event.key === "j" ? Math.min(at + 1, rows.length - 1) : Math.max(at - 1, 0);
      rows[next].focus();
    }
    return;
  }
  const keyed = [...main.querySelectorAll("[data-key]"), ...document.querySelectorAll("[data-key]")];
  const wanted = keyed.find((one) => one.dataset.key === event.key);
  if (wanted) {
    event.preventDefault();
    if (wanted.matches("input")) wanted.focus();
    else wanted.click();
  }
});

// A run in progress: ask for its mark, and take over the parts that live once it has changed.
const live = document.body.dataset.state;
if (live && main.querySelector("[data-live]")) {
  let mark = document.body.dataset.mark;
  const look = async () => {
    let wait = 2000;
    try {
      const state = await (await fetch(live, { cache: "no-store" })).json();
      if (state.unread > 0) wait = 500;
      if (state.mark !== mark) {
        const page = await (await fetch(location.href, { cache: "no-store" })).text();
        const fresh = new DOMParser().parseFromString(page, "text/html");
        for (const part of document.querySelectorAll("[data-live]")) {
          const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
          if (other && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(other));
        }
        mark = fresh.body.dataset.mark;
      }
    } catch {
      wait = 10000; // the server has gone, or will be back
    }
    if (!document.hidden) setTimeout(look, wait);
    else document.addEventListener("visibilitychange", look, { once: true });
  };
  setTimeout(look, 1000);
}
