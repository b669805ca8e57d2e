// Numbers and charts follow spends: when a budget on the page has moved, the page is asked for
// again and what is marked as live is put in its place. Without scripts one loads it by hand.
"use strict";
(() => {
  const all = (kind) => [...document.querySelectorAll(`[data-${kind}]`)].map((e) => e.dataset[kind]);
  const asked = [...all("budget").map((name) => ["name", name]), ...all("run").map((id) => ["run", id])];
  const light = document.getElementById("live");
  if (!asked.length || !light || !window.EventSource) return;
  let state = null, busy = false, again = false;

  const say = (words, on) => {
    light.textContent = words;
    light.classList.toggle("on", on);
  };
  const follow = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.redirected || !answer.ok) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(old.id);
        if (!fresh || old.contains(document.activeElement)) continue;
        const open = [...old.querySelectorAll("details[open]")].map((e) => e.id);
        old.replaceWith(document.adoptNode(fresh));
        for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      }
    } catch {
      say("not connected", false);
    } finally {
      busy = false;
      if (again) { again = false; follow(); }
    }
  };
  const query = asked.map(([kind, it]) => kind + "=" + encodeURIComponent(it)).join("&");
  const events = new EventSource("/events?" + query);
  events.onopen = () => say("live", true);
  events.onerror = () => say("not connected", false);
  events.onmessage = (event) => {
    const found = JSON.parse(event.data).state;
    if (state !== null && state !== found) follow();
    state = found;
  };
})();
