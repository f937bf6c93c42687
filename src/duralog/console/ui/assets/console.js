// Runs in the head of every page, before anything is painted: light or dark, and the keys.
"use strict";

const duralog = (() => {
  const KEPT = "duralog-theme";
  const CHOICES = ["system", "light", "dark"];
  const ZONE = "duralog-zone";
  const system = matchMedia("(prefers-color-scheme: dark)");

  const choice = () => {
    const kept = localStorage.getItem(KEPT);
    return CHOICES.includes(kept) ? kept : "system";
  };

  const apply = () => {
    const chosen = choice();
    const dark = chosen === "dark" || (chosen === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    window.Quasar?.Dark?.set(dark);
    document.getElementById("nicegui-color-scheme")?.setAttribute("content", dark ? "dark" : "light");
    for (const button of document.querySelectorAll("[data-testid=theme-toggle]")) {
      button.dataset.choice = chosen;
      const label = `Colours: ${chosen === "system" ? "as the system" : chosen}`;
      button.setAttribute("aria-label", label);
      button.title = `${label} (t)`;
    }
  };

  const nextTheme = () => {
    localStorage.setItem(KEPT, CHOICES[(CHOICES.indexOf(choice()) + 1) % CHOICES.length]);
    apply();
  };

  const toggleHelp = () => {
    const help = document.querySelector("dialog[data-testid=shortcuts]");
    if (help) help.open ? help.close() : help.showModal();
  };

  const focusSearch = () => {
    const search = document.querySelector("[data-search]");
    search?.focus();
    search?.select?.();
    return Boolean(search);
  };

  // Whether it worked. Without a secure address scripts have no clipboard, but a selection can be copied. While a dialog
  // is open, only what is inside can be selected.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const focused = document.activeElement;
      const area = document.createElement("textarea");
      area.value = text;
      area.style.position = "fixed";
      (document.querySelector("dialog[open]") ?? document.body).append(area);
      area.select();
      const isCopied = document.execCommand("copy");
      area.remove();
      focused?.focus();
      return isCopied;
    }
  };

  const PLACES = { o: "/", g: "/groups", s: "/subjects", c: "/configs", a: "/acls", h: "/health" };
  let waiting = 0;

  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector("dialog.change[open]")) return;
    const target = event.target;
    if (target instanceof Element && target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (waiting && event.key in PLACES) {
      location.assign(PLACES[event.key]);
    } else if (event.key === "g") {
      clearTimeout(waiting);
      waiting = setTimeout(() => (waiting = 0), 1500);
      return;
    } else if (event.key === "/" && focusSearch()) {
      event.preventDefault();
    } else if (event.key === "?") {
      toggleHelp();
    } else if (event.key === "t") {
      nextTheme();
    }
    clearTimeout(waiting);
    waiting = 0;
  };

  // The server shows times in the zone of this cookie, and in UTC without one. A page in another zone than the browser's
  // is asked for again once it is loaded; not if the browser keeps no cookies.
  const keptZone = () => document.cookie.split("; ").find((part) => part.startsWith(`${ZONE}=`))?.slice(ZONE.length + 1);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  if ((keptZone() ?? "UTC") !== zone) {
    document.cookie = `${ZONE}=${zone}; path=/; max-age=31536000; SameSite=Lax`;
    if (keptZone() === zone) addEventListener("load", () => location.reload(), { once: true });
  }

  apply();
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
  addEventListener("keydown", onKey);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    // The toolkit mounts the page after this script: the button is told its state once it is there.
    const watch = new MutationObserver(() => {
      if (document.querySelector("[data-testid=theme-toggle]")) {
        watch.disconnect();
        apply();
      }
    });
    watch.observe(document.body, { childList: true, subtree: true });
  });
  return { copy, nextTheme, toggleHelp, focusSearch };
})();
